"""Run files for a site, made of the sample run: other stacks, dates and findings. Never a result of an audit."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SAMPLE = Path(__file__).resolve().parent.parent / "report/runs/llama.jsonl.gz"
MI300X = {"backend": "hip", "name": "AMD Instinct MI300X", "arch": "gfx942"}
MI250X = {"backend": "hip", "name": "AMD Instinct MI250X", "arch": "gfx90a"}
H200 = {"backend": "cuda", "name": "NVIDIA H200", "arch": "sm_90"}
SIM = {"backend": "sim", "name": "simulated device", "arch": "sim", "properties": {"faults": "none"}}
EVIDENCE = {"hip": "measured", "cuda": "stand-in", "sim": "simulated", "none": "predicted"}
ROCM_72 = {"torch": "2.13.0+rocm7.2", "hip": "7.2.26015", "rocm": "7.2.1", "amdgpu": "6.16.13"}
ROCM_71 = {"torch": "2.12.1+rocm7.1", "hip": "7.1.25424", "rocm": "7.1.0", "amdgpu": "6.16.13"}


@cache
def sample() -> tuple[dict[str, Any], ...]:
    return tuple(json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines())


def healthy_keys(n: int) -> tuple[str, ...]:
    """Keys of cases that ran well and whose outputs were compared by number."""
    found = [
        record["measurement"]["key"]
        for record in sample()
        if "measurement" in record
        and record["measurement"]["device"] == {"kind": "ok"}
        and all(
            c["standard"] == "numeric" and c.get("worst_ratio", 0) < 4 for c in record["measurement"]["comparisons"]
        )
        and record["measurement"]["comparisons"]
        and not record["measurement"]["path"].get("copies")
    ]
    return tuple(found[:n])


def write_run(
    folder: Path,
    *,
    device: Mapping[str, Any] = MI300X,
    environment: Mapping[str, str] = ROCM_72,
    created: str = "2026-11-20T12:00:00+00:00",
    source: str = "llama_train.py",
    keys: Iterable[str] | None = None,
    wrong: Iterable[str] = (),
    raising: Iterable[str] = (),
    left_out: Iterable[str] = (),
    timed: Iterable[str] = (),
    header: Mapping[str, Any] | None = None,
) -> Path:
    """A run of some cases of the sample on a device: ``wrong`` ones are off by far, ``raising`` ones raise on it,
    ``left_out`` ones were never started, only ``timed`` ones have times. Returns the run folder."""
    wanted = tuple(keys if keys is not None else healthy_keys(6))
    records = sample()
    cases = [record for record in records if record.get("case", {}).get("key") in wanted]
    assert len(cases) == len(wanted), "the sample has these cases"
    first = dict(records[0]["header"])
    first |= {
        "evidence": EVIDENCE[device["backend"]], "device": device, "environment": environment, "created": created,
        "source": {"kind": "script", "name": source, "n_steps": 2}, "n_cases": len(cases), "not_audited": [],
        "preflight": [], **(header or {}),
    }  # fmt: skip
    measured = []
    for record in records:
        key = record.get("measurement", {}).get("key")
        if key in wanted and key not in set(left_out):
            measurement = json.loads(json.dumps(record["measurement"]))
            measurement["path"] = {"observed": True, "complete": True}
            if key not in set(timed):
                measurement.pop("device_time", None)
            if key in set(wrong):
                measurement["comparisons"][0] |= {"worst_ratio": 400.0, "max_abs_error": 0.5, "ratio_counts": [9] * 9}
            if key in set(raising):
                raised = {
                    "kind": "raised",
                    "error_type": "RuntimeError",
                    "message": "HIP error: invalid device function",
                }
                measurement |= {"comparisons": [], "device": raised}
            measured.append({"measurement": measurement})
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"header": first}, *cases, *measured, {"end": {"complete": True}}]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    (folder / "run.jsonl").write_text(text, encoding="utf-8")
    return folder
