"""Size and build time of the report: a real run, its cases repeated under new keys up to the number wanted."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from audit.report.registry import write
from audit.rules.judge import judge
from audit.run_records import Run
from audit.schema import Case, Measurement
from audit.store import read_run
from tests.bench import material
from tests.bench.lines import Line, median_s

N_RUNS = 3


def measure() -> Iterator[Line]:
    run = read_run(material.run())
    for n_cases in (500, 5000):
        large = repeated(run, n_cases)
        judging = median_s(lambda large=large: judge(large), N_RUNS, warm_up=0)
        judgement = judge(large)
        n_findings = sum(bool(verdict.findings) for verdict in judgement.verdicts)
        with tempfile.TemporaryDirectory() as folder:
            building = median_s(lambda j=judgement, f=folder: write(j, ("html",), Path(f)), N_RUNS, warm_up=0)
            [page] = Path(folder).glob("*.html")
            size = page.stat().st_size
        how = f"{n_cases} cases from a real run of bert_train.py on a faulty sim, {n_findings} with findings"
        yield Line(f"judging {n_cases} cases", f"{judging:.2f} s", how)
        yield Line(f"report of {n_cases} cases", f"{building:.2f} s", how, "under 5 s" if n_cases == 5000 else "")
        yield Line("its size", f"{size / 1e6:.2f} MB", how, "at most 3 MB" if n_cases == 500 else "")


def repeated(run: Run, n_cases: int) -> Run:
    """A run of ``n_cases``: the cases of ``run`` over and over, each with a key of its own."""
    cases: list[Case] = []
    measurements: dict[str, Measurement] = {}
    for number, case in enumerate(itertools.islice(itertools.cycle(run.cases), n_cases)):
        key = f"{case.key}-{number}"
        cases.append(replace(case, key=key))
        if case.key in run.measurements:
            measurements[key] = replace(run.measurements[case.key], key=key)
    header = replace(run.header, n_cases=n_cases, n_recorded=sum(case.n_calls for case in cases))
    return replace(run, header=header, cases=tuple(cases), measurements=measurements)
