"""Replays the cases of a trace on the device and writes what ran in each.

``python -m tests.fidelity.replayed DEVICE TRACE OUT`` places operands and calls ops as the audit's worker does, in one
session of the profiler.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

from audit.device.cpu import CpuDevice
from audit.device.gpu import GpuDevice
from audit.opset import extract_values, read_opset
from audit.replay.execute import call, in_phase, resolve
from audit.replay.inputs import Bound, ValueFile, bind, materialise, seed_generators, storages_of, torch_dtype
from audit.replay.spool import on_storage
from audit.schema import Case, TensorSpec
from tests.fidelity.ran import Session, marked, tallies_by_mark

SEED = 0


def main(device_name: str, trace_file: Path, output: Path) -> None:
    os.dup2(2, 1)
    device = CpuDevice() if device_name == "cpu" else GpuDevice()
    trace = read_opset(trace_file)
    failed: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        stored = ValueFile(extract_values(trace_file, Path(folder)))
        session = Session()
        session.start()
        for case in trace.cases:
            try:
                _replay(case, stored, device)
            except Exception as error:  # noqa: BLE001 - an op that fails is counted as one that led to nothing
                failed[case.key] = f"{type(error).__name__}: {str(error)[:300]}"
        by_case = tallies_by_mark(session.stop())
    rows = [
        {
            "key": case.key,
            "op": case.op,
            "phase": case.phase,
            "n_calls": case.n_calls,
            "failed": failed.get(case.key, ""),
            "ran": [[r.op, r.dtypes, r.shapes, t.calls, t.us] for r, t in by_case.get(case.key, {}).items()],
        }
        for case in trace.cases
    ]
    output.write_text(json.dumps(rows))


def _replay(case: Case, stored: ValueFile, device: CpuDevice | GpuDevice) -> None:
    bound, op = _place(case, stored, device), resolve(case.op)
    seed_generators(SEED, device.torch_device)

    def run() -> None:
        with marked(case.key):
            if case.grads is None:
                with torch.no_grad():
                    op(*bound.args, **bound.kwargs)
            else:
                call(case, op, bound)
            device.synchronize()

    in_phase(case.phase, case, run)


def _place(case: Case, stored: ValueFile, device: CpuDevice | GpuDevice) -> Bound:
    contents = materialise(case, stored, SEED)
    views: dict[int, Callable[[TensorSpec], torch.Tensor]] = {}
    for storage in storages_of(case):
        content = contents[storage.name]
        if storage.host:
            view = _host_view(content)
        else:
            view = _device_view(device, content)
        views.update({position: view for position, _ in storage.members})
    return bind(case, lambda position, spec: views[position](spec), device.torch_device, SEED)


def _host_view(content: torch.Tensor) -> Callable[[TensorSpec], torch.Tensor]:
    return lambda spec: on_storage(content, torch_dtype(spec.dtype), spec.sizes, spec.strides, spec.offset)


def _device_view(device: CpuDevice | GpuDevice, content: torch.Tensor) -> Callable[[TensorSpec], torch.Tensor]:
    buffer = device.buffer(content)
    return lambda spec: buffer.view(torch_dtype(spec.dtype), spec.sizes, spec.strides, spec.offset)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
