"""Traces written by hand: the few events that a test is about, as Kineto writes them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

MI300X = {"id": 0, "name": "AMD Instinct MI300X", "numSms": 304, "warpSize": 64, "totalGlobalMem": 206141652992,
          "computeMajor": 9, "computeMinor": 4}  # fmt: skip
#: Matrix products of two bf16 matrices, as `aten::mm` has its arguments.
MM = {
    "Input Dims": [[8, 16], [16, 4]],
    "Input Strides": [[16, 1], [1, 16]],
    "Input type": ["c10::BFloat16", "c10::BFloat16"],
    "Concrete Inputs": ["", ""],
}


def op(name: str, ts: float, dur: float, external: int = 0, tid: int = 1, **args: Any) -> dict[str, Any]:
    ids = {"External id": external} if external else {}
    return {
        "ph": "X",
        "cat": "cpu_op",
        "name": name,
        "pid": 1,
        "tid": tid,
        "ts": ts,
        "dur": dur,
        "args": {**ids, **args},
    }


def launch(ts: float, correlation: int, name: str = "hipLaunchKernel", tid: int = 1, pid: int = 1) -> dict[str, Any]:
    args = {"correlation": correlation}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": 1, "args": args}


def kernel(name: str, ts: float, dur: Any, correlation: int = 0, external: int = 0, **more: Any) -> dict[str, Any]:
    args = {"device": 0, "stream": 0, "correlation": correlation, **({"External id": external} if external else {})}
    event = {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 0, "ts": ts, "dur": dur, "args": args}
    return {**event, **more}


def trace(path: Path, *events: dict[str, Any], **properties: Any) -> Path:
    """Of an MI300X, where ``properties`` say nothing else."""
    known = {"deviceProperties": [MI300X], "hip_runtime_version": 60443483, **properties}
    content = json.dumps({**{k: v for k, v in known.items() if v is not None}, "traceEvents": list(events)}).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path
