"""Device time by op, joined by correlation id straight from a trace's events; nothing of the audit is used."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any, TypeAlias

#: An op's name and the sizes of its tensors.
Op: TypeAlias = tuple[str, str]

_NO_TENSOR = ("Scalar", "ScalarList", "TensorList", "GenericList", "")


def events(path: Path) -> list[dict[str, Any]]:
    """All events of a trace."""
    found: list[dict[str, Any]] = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return found


def device_events(path: Path) -> list[dict[str, Any]]:
    return [event for event in events(path) if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]


def total_ns(path: Path) -> int:
    """Of everything that ran on the device."""
    return sum(nanoseconds(event) for event in device_events(path))


def nanoseconds(event: dict[str, Any]) -> int:
    return round(event["dur"] * 1000)


def sizes_text(event: dict[str, Any]) -> str:
    """The sizes of the tensors that are arguments themselves."""
    args = event["args"]
    pairs = zip(args.get("Input Dims", []), args.get("Input type", []), strict=True)
    return str([sizes for sizes, kind in pairs if kind not in _NO_TENSOR])


def ns_by_op(path: Path, known: Collection[Op]) -> dict[Op, int]:
    """Each kernel goes to the outermost op of ``known`` that was running on the thread where it was launched."""
    everything = events(path)
    launches = {
        event["args"]["correlation"]: event
        for event in everything
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event["args"]
    }
    by_thread: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in everything:
        if event.get("cat") == "cpu_op" and (event["name"], sizes_text(event)) in known:
            by_thread[event["tid"]].append(event)
    sums: dict[Op, int] = defaultdict(int)
    for event in device_events(path):
        launch = launches.get(event["args"]["correlation"])
        around = [
            op
            for op in by_thread[launch["tid"]]
            if op["ts"] <= launch["ts"] <= op["ts"] + op["dur"]
        ] if launch else []  # fmt: skip
        if around:
            outermost = min(around, key=lambda op: (op["ts"], -op["dur"]))
            sums[outermost["name"], sizes_text(outermost)] += nanoseconds(event)
    return dict(sums)
