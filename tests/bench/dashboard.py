"""A site of many runs: CPU time, memory, and what a second build does. Made runs of 500 cases; see tests/dashboard.

``python -m tests.bench dashboard`` takes 200 runs; the evidence test of tests/dashboard/test_scale.py takes 2,000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.lines import Line
from tests.bench.material import CHECKOUT
from tests.bench.memory import family, resident
from tests.dashboard.many_runs import write_many

N_RUNS, N_CASES = 200, 500
INTERVAL_S = 0.1


@dataclass(frozen=True)
class Build:
    """One call of ``rocm-audit dashboard``: its ``--json``, CPU seconds of all its processes, peak bytes of all."""

    told: dict[str, Any]
    cpu_s: float
    peak_bytes: int


def measure() -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="rocm-audit-bench-") as folder:
        yield from measured(Path(folder), N_RUNS)


def measured(place: Path, n_runs: int) -> Iterator[Line]:
    """A first build, a second without a new run, a third with one; what lies there afterwards."""
    write_many(place / "runs", n_runs, N_CASES)
    how = f"{n_runs:,} made runs of {N_CASES} cases, {os.cpu_count()} processes; CPU time of all"
    first = build(place)
    yield Line("first build", f"{first.cpu_s:.0f} s", how)
    yield Line("of it for a run", f"{first.cpu_s / n_runs:.3f} s", how)
    yield Line("peak memory", f"{first.peak_bytes / 2**20:.0f} MiB", "all processes together", "under 500 MiB")
    second = build(place)
    yield Line("build with nothing new", f"{second.cpu_s:.1f} s", f"{second.told['files']['written']} files written")
    write_many(place / "runs", 1, N_CASES, n_runs)
    third = build(place)
    files = third.told["files"]
    yield Line("build with one new run", f"{third.cpu_s:.1f} s", f"{files['written']:,} of {files['total']:,} files")
    yield Line("the site", f"{size(place / 'site') / 1e6:.0f} MB", f"{files['total']:,} files")
    yield Line("the run files", f"{size(place / 'runs') / 1e6:.0f} MB", how)
    yield Line("the cache", f"{size(place / 'cache') / 1e6:.0f} MB", "one SQLite file")


def build(place: Path) -> Build:
    """Builds ``site`` of ``runs`` with ``cache``, all below ``place``."""
    command = [sys.executable, "-m", "audit", "dashboard", "runs", "-o", "site", "--cache", "cache", "-q", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    with (place / "told.json").open("w+") as told:
        process = subprocess.Popen(command, cwd=place, env=environment, stdout=told)
        peak = 0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, sum(resident(one) for one in family(process.pid)))
            time.sleep(INTERVAL_S)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0, "the build finishes"
        told.seek(0)
        return Build(json.load(told), usage.ru_utime + usage.ru_stime, peak)


def size(folder: Path) -> int:
    """Bytes of all files below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
