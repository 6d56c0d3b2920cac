"""How many cases a second go through the pool on the simulated device, both children warm."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from audit.opset import extract_values, read_opset
from audit.replay.engine import ReplaySettings
from audit.replay.pool import Pool
from audit.schema import Case, Measurement
from tests.bench import material
from tests.bench.lines import Line

N_CASES = 60
N_RUNS = 3


def measure() -> Iterator[Line]:
    cases = read_opset(material.trace()).cases[:N_CASES]
    with tempfile.TemporaryDirectory() as scratch:
        settings = ReplaySettings(device="sim", values=extract_values(material.trace(), Path(scratch)))
        start = perf_counter()
        with Pool(settings) as pool:
            pool.device_info()
            replay(pool, cases[:1])
            starting = perf_counter() - start
            rates = [replay(pool, cases) for _ in range(N_RUNS)]
    how = f"the first {len(cases)} cases of bert_train.py on sim, {N_RUNS} runs, warm children"
    yield Line("replay", f"{statistics.median(rates):.1f} cases/s", how)
    yield Line("start of both children and a first case", f"{starting:.1f} s", "once for each audit")


def replay(pool: Pool, cases: Sequence[Case]) -> float:
    """Cases a second."""
    start = perf_counter()
    measured = [event for event in pool.replay(cases) if isinstance(event, Measurement)]
    return len(measured) / (perf_counter() - start)
