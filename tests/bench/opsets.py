"""Size of an ``.audit`` file and the time that it takes to write and to read: with values, without, and private."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from audit.device.environment import collect_environment
from audit.opset import read_opset
from audit.privacy.name_map import map_path
from audit.schema import Source
from audit.tracer.program import Program, run_program
from audit.tracer.recorder import Recorder
from audit.tracer.values import DEFAULT_TOTAL_BYTES, ValueRecorder
from audit.tracer.writing import write_trace
from tests.bench.lines import Line, median_s
from tests.bench.material import CHECKOUT

DEMO = "examples/llama_train.py"
N_WRITES = 5


def measure() -> Iterator[Line]:
    yield from one("with values", DEFAULT_TOTAL_BYTES, private=False)
    yield from one("without values", 0, private=False)
    yield from one("private", 0, private=True)


def one(what: str, values_bytes: int, private: bool) -> Iterator[Line]:
    recorder, source = recorded(values_bytes)
    environment = collect_environment()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.audit")
        names = map_path(path) if private else None
        writing = median_s(lambda: write_trace(recorder, source, environment, path, names), N_WRITES)
        reading = median_s(lambda: read_opset(path), N_WRITES)
        trace, size = read_opset(path), path.stat().st_size
    how = f"{DEMO}: {len(trace.cases)} cases of {trace.n_recorded} calls"
    yield Line(f".audit {what}: size", f"{size / 1e6:.2f} MB", how)
    yield Line(f".audit {what}: write, to the disk", f"{writing * 1e3:.0f} ms", how)
    yield Line(f".audit {what}: read, all but the values", f"{reading * 1e3:.0f} ms", how)


def recorded(values_bytes: int) -> tuple[Recorder, Source]:
    """The demo's program, run here under a recorder."""
    recorder = Recorder(ValueRecorder(total_bytes=values_bytes))
    with redirect_stdout(StringIO()):
        source = run_program(Program(str(CHECKOUT / DEMO)), recorder)
    return recorder, source
