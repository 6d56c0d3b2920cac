"""Sizes of the ``.audit`` files of two training steps, and of what torch's DebugMode would print of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from audit.schema import Source
from audit.tracer.recorder import Recorder
from audit.tracer.values import ValueRecorder
from audit.tracer.writing import write_trace
from tests.bench.lines import Line
from tests.bench.tracing import training_step


def measure() -> Iterator[Line]:
    step = training_step()
    with tempfile.TemporaryDirectory() as folder:
        with_values, n_calls, n_cases = written(step, ValueRecorder(), Path(folder, "values.audit"))
        without, _, _ = written(step, None, Path(folder, "shapes.audit"))
    how = f"two training steps of the small Llama: {n_calls} calls in {n_cases} cases"
    yield Line("file with values", f"{with_values / 1e6:.2f} MB", how)
    yield Line("file without values", f"{without / 1e3:.0f} kB", how)
    yield Line("of it for a case", f"{without / n_cases:.0f} bytes", how)
    yield Line("of it for a call", f"{without / n_calls:.0f} bytes", "equal calls are one case")
    try:
        from torch.utils._debug_mode import DebugMode  # private; torch 2.10 and newer
    except ImportError:
        yield Line("DebugMode's text", "-", f"torch {torch.__version__} has none")
        return
    with DebugMode(record_nn_module=True) as mode:
        step()
        step()
    yield Line("DebugMode's text", f"{len(mode.debug_string()) / 1e3:.0f} kB", "the same steps, with modules")


def written(step: Callable[[], None], values: ValueRecorder | None, path: Path) -> tuple[int, int, int]:
    """Bytes of the file, recorded calls, cases."""
    recorder = Recorder(values)
    recorder.start()
    try:
        step()
        step()
    finally:
        recorder.stop()
    trace = write_trace(recorder, Source("script", "bench"), {}, path)
    return path.stat().st_size, trace.n_recorded, len(trace.cases)
