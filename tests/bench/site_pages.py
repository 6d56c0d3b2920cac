"""What the pages of a large site weigh, how soon Chromium shows them, and what rendering one costs.

The site is made, not measured: 2,000 runs of 500 cases on five devices with eight pairs of versions, 400 ops.
"""

from __future__ import annotations

import re
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from audit.dashboard.links import op_slug
from audit.dashboard.pages import site_files
from tests.bench.lines import Line, cpu_clock
from tests.browser import BROWSER, DRIVER, address_of, open_browser
from tests.dashboard.made_contents import MadeContents
from tests.dashboard.site_on_disk import text_of, write_site

N_LOADS = 5
HOW = "2,000 runs × 500 cases, 400 ops, 40 stacks, made"
CONTENTS = MadeContents(n_versions=8, n_ops=400, n_models=60, n_runs=2000, n_cases=500, n_signatures=60)
MM = op_slug("aten::mm.default")
RUN = "run-00000-5f0c6d1a"
GPU = CONTENTS.gpus()[0].slug
PAGES = {
    "first page": "index.html",
    "matrix": "matrix.html",
    "op": f"ops/{MM}.html",
    "device": f"gpus/{GPU}.html",
    "run": f"runs/{RUN}.html",
    "list of runs": "runs.html",
}
WANTED = (
    f"(assets|index|matrix.html|runs.html|data/(matrix|search|runs|op-{MM}|run-{RUN})|ops/{MM}|gpus/{GPU}|runs/{RUN})"
)


def measure() -> Iterator[Line]:
    yield from _rendering()
    if BROWSER is None or DRIVER is None:
        yield Line("pages in a browser", "not measured", "needs chromium and chromedriver")
        return
    with tempfile.TemporaryDirectory() as name, open_browser() as browser:
        site = write_site(CONTENTS, Path(name), WANTED)
        for kind, path in PAGES.items():
            yield _loaded(browser, site, kind, path)
        yield _filtered(browser, site, "the matrix, filtered", "matrix.html#status=divergent&versions=all")
        yield _filtered(browser, site, "all cases of a run, sorted", f"runs/{RUN}.html#sort=-5")


def _rendering() -> Iterator[Line]:
    """CPU time of the thread, over thirty files of a kind."""
    for kind, pattern in (("a run", "(runs/|data/run-)run-000[0-2]"), ("an op", f"ops/|data/op-{MM[:2]}")):
        start, n = cpu_clock(), 0
        size = 0
        for file in site_files(CONTENTS):
            if n < 60 and re.match(pattern, file.path):
                size += len(text_of(file))
                n += 1
        spent = cpu_clock() - start
        yield Line(
            f"rendering {kind}",
            f"{1e3 * spent / max(n, 1):.0f} ms a file",
            f"{HOW}; CPU, {n} files, {size / n / 1e3:.0f} kB",
        )


def _loaded(browser: Any, site: Path, kind: str, path: str) -> Line:
    """From the start of the navigation to the end of the load event."""
    script = "const one = performance.getEntriesByType('navigation')[0]; return one.loadEventEnd - one.startTime"
    times = []
    for _ in range(N_LOADS):
        browser.get("about:blank")
        browser.get(address_of(site / path))
        times.append(browser.execute_script(script))
    weight = (site / path).stat().st_size + sum(file.stat().st_size for file in (site / "assets").iterdir())
    n_elements = browser.execute_script("return document.querySelectorAll('*').length")
    how = f"{HOW}; median of {N_LOADS}, {weight / 1e3:.0f} kB with its assets, {n_elements:,} elements"
    return Line(f"opening {kind}", f"{statistics.median(times):.0f} ms", how, "under 1 s")


def _filtered(browser: Any, site: Path, kind: str, address: str) -> Line:
    """From the start of the navigation until the filtered rows stand there, data of the script and all."""
    path, _, fragment = address.partition("#")
    script = "return document.getElementById('shown').textContent.match(/shown|on \\d+ stacks/) ? performance.now() : 0"
    times = []
    for _ in range(N_LOADS):
        browser.get("about:blank")
        browser.get(f"{address_of(site / path)}#{fragment}")
        deadline = time.monotonic() + 30
        while not (done := browser.execute_script(script)) and time.monotonic() < deadline:
            time.sleep(0.01)
        times.append(done)
    return Line(kind, f"{statistics.median(times):.0f} ms", f"{HOW}; median of {N_LOADS}", "under 1 s")
