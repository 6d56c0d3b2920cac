"""What the reference of a case costs beside one run of it on the CPU: inputs, fp64, noise."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from audit.opset import extract_values, read_opset
from audit.replay.reference import Reference
from tests.bench import material
from tests.bench.lines import Line

N_CASES = 120


def measure() -> Iterator[Line]:
    cases = read_opset(material.trace()).cases[:N_CASES]
    with tempfile.TemporaryDirectory() as scratch:
        reference = Reference(extract_values(material.trace(), Path(scratch)), Path(scratch), seed=0, n_threads=1)
        reference.prepare(cases[0])
        taken, alone = [], []
        for case in cases:
            start = perf_counter()
            answer = reference.prepare(case)
            taken.append(perf_counter() - start)
            alone.append(answer["timing"]["first_us"] / 1e6 if answer["timing"] else 0.0)
            reference.forget(case.key)
    how = f"the first {len(cases)} cases of bert_train.py, one thread"
    yield Line("reference of a case", f"{statistics.median(taken) * 1e3:.1f} ms", how)
    yield Line("reference / one run on the CPU", f"{sum(taken) / sum(alone):.1f}", f"{how}, all of them together")
