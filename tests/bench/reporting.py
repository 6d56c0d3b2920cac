"""The report: size, build time, and how soon Chromium shows it. A real run, its cases repeated under new keys."""

from __future__ import annotations

import itertools
import statistics
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
from tests.bench.lines import Line, cpu_clock, median_s
from tests.browser import BROWSER, DRIVER, open_browser, save, visit

N_RUNS, N_LOADS = 3, 5


def measure() -> Iterator[Line]:
    run = read_run(material.run())
    pages: dict[int, str] = {}
    for n_cases in (500, 5000):
        large = repeated(run, n_cases)
        judging = median_s(lambda large=large: judge(large), N_RUNS, warm_up=0, clock=cpu_clock)
        judgement = judge(large)
        n_findings = sum(bool(verdict.findings) for verdict in judgement.verdicts)
        with tempfile.TemporaryDirectory() as folder:
            building = median_s(
                lambda j=judgement, f=folder: write(j, ("html",), Path(f)), N_RUNS, warm_up=0, clock=cpu_clock
            )
            [page] = Path(folder).glob("*.html")
            size = page.stat().st_size
            pages[n_cases] = page.read_text(encoding="utf-8")
        how = f"{n_cases} cases from a real run of bert_train.py on a faulty sim, {n_findings} with findings"
        yield Line(f"judging {n_cases} cases", f"{judging:.2f} s", f"{how}; CPU")
        yield Line(
            f"report of {n_cases} cases",
            f"{building:.2f} s",
            f"{how}; CPU, scripts too",
            "under 5 s" if n_cases == 5000 else "",
        )
        yield Line("its size", f"{size / 1e6:.2f} MB", how, "at most 3 MB" if n_cases == 500 else "")
    yield from _opened(pages)


def _opened(pages: dict[int, str]) -> Iterator[Line]:
    """Wall clock from the start of the navigation: to the first text, and to the end of the load event."""
    if BROWSER is None or DRIVER is None:
        yield Line("report in a browser", "not measured", "needs chromium and chromedriver")
        return
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        for n_cases, page in pages.items():
            address = save(page, Path(folder) / f"{n_cases}.html")
            times = []
            for _ in range(N_LOADS):
                visit(browser, address)
                times.append(browser.execute_script(_TIMES))
            painted, loaded = (statistics.median(each) for each in zip(*times, strict=True))
            spread = max(time[1] for time in times) - min(time[1] for time in times)
            n_elements = browser.execute_script("return document.querySelectorAll('*').length")
            how = f"median of {N_LOADS} in headless Chromium, {n_elements:,} elements"
            yield Line(f"first text of {n_cases} cases", f"{painted:.0f} ms", how, "under 1 s")
            yield Line(f"opening {n_cases} cases", f"{loaded:.0f} ms", f"{how}, within {spread:.0f} ms")


_TIMES = """
const navigation = performance.getEntriesByType("navigation")[0];
const painted = performance.getEntriesByName("first-contentful-paint")[0];
return [painted ? painted.startTime : navigation.loadEventEnd, navigation.loadEventEnd];
"""


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
