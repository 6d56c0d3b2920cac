"""Run files to digests, in several processes: read and judged by today's rules, each file for itself.

A file that cannot be read is left out with a sentence, and one that ends the process which reads it with another.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import TypeAlias

from audit.dashboard.change_rows import LeftOut
from audit.dashboard.digest import Digest, digest
from audit.dashboard.gather import MAX_RUN_BYTES, RUN_FILE, RunFile
from audit.errors import AuditError
from audit.ordinary_file import open_ordinary
from audit.report.text import one_line
from audit.rules.judge import judge
from audit.schema import Case
from audit.store import read_content

#: A process takes half a second to start, in which one judges some 1,500 cases.
_FEW_BYTES = 4 << 20
#: Files that a process is ahead with: their digests wait in memory until they are stored.
_AHEAD = 4
_MAX_PROCESSES = 16
#: Cases by their lines in the files read so far: runs of a site are of few opsets. A case takes some 10 KB.
_cases: dict[bytes, Case] = {}
_MAX_CASES = 5_000
#: Code that says what a digest holds, beside the modules at the top of the package: rooms, and single files.
_ROOMS, _FILES = ("rules", "knowledge", "gate", "report", "opset"), ("dashboard/digest.py", "dashboard/rows.py")

#: A digest with the SHA-256 of what was read, which may have grown since it was gathered, and of how it begins
#: (``origin_of``); or why there is none.
Judged: TypeAlias = "tuple[str, str, Digest] | LeftOut"
_MEASUREMENT = b'\n{"measurement":'


@cache
def judging_version() -> str:
    """A digest over the rules, the knowledge and what reads and reduces runs: another one judges all runs again."""
    home = Path(__file__).parent.parent
    files = [*home.glob("*.py"), *(home / name for name in _FILES)]
    files += [file for room in _ROOMS for file in (home / room).rglob("*") if file.is_file()]
    total = hashlib.sha256()
    for file in sorted(files):
        if file.suffix in (".py", ".csv", ".json"):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            total.update(f"{file.relative_to(home).as_posix()} {content}\n".encode())
    return total.hexdigest()[:16]


def judge_files(files: Sequence[RunFile]) -> Iterator[tuple[RunFile, Judged]]:
    """Each file with what became of it, in any order. Holds a few digests at a time."""
    n_processes = min(os.cpu_count() or 1, len(files), _MAX_PROCESSES)
    if n_processes < 2 or sum(file.n_bytes for file in files) < _FEW_BYTES:
        for file in files:
            yield file, judge_file(file)
        return
    # The largest first, so that no process is left with one of them while the others have nothing to do.
    waiting = sorted(files, key=lambda file: (-file.n_bytes, file.label))
    broken: list[RunFile] = []
    with _pool(n_processes) as pool:
        try:
            yield from _judged_by(pool, waiting, n_processes, broken)
        finally:
            pool.shutdown(cancel_futures=True)
    for file in broken:
        yield file, _alone(file)


def judge_file(file: RunFile) -> Judged:
    """Reads and judges one file."""
    try:
        with open_ordinary(file.path) as opened:
            content = opened.read(MAX_RUN_BYTES + 1)
        if len(content) > MAX_RUN_BYTES:
            return LeftOut(
                file.label, slug="too-large-run", reason="has grown beyond what a dashboard takes while it was read"
            )
        if len(_cases) > _MAX_CASES:
            _cases.clear()
        judged = digest(judge(read_content(Path(RUN_FILE), content, _cases)))
        return hashlib.sha256(content).hexdigest(), origin_of(content), judged
    except AuditError as error:
        return LeftOut(file.label, error.slug, one_line(str(error).removesuffix(f" [{error.slug}]"), 400))
    except OSError as error:
        return LeftOut(file.label, slug="unreadable-run", reason=f"cannot be read: {error.strerror or error}")
    except Exception as error:  # noqa: BLE001  # a worker's loop: one file that our rules trip over must not end the site
        said = one_line(f"{type(error).__name__}: {error}", 300)
        return LeftOut(file.label, slug="unjudged-run", reason=f"could not be judged, by a fault of rocm-audit: {said}")


def origin_of(content: bytes) -> str:
    """A digest of a run up to its first measurement: it stays while the run goes on, and tells runs of one array of
    jobs apart that began in the same second."""
    first = content.find(_MEASUREMENT)
    end = len(content) if first < 0 else content.find(b"\n", first + 1)
    return hashlib.sha256(content[:end] if end >= 0 else content).hexdigest()


def _pool(n_processes: int) -> ProcessPoolExecutor:
    """Fresh processes: a copy of this one would have its open data base."""
    return ProcessPoolExecutor(n_processes, multiprocessing.get_context("spawn"), initializer=_leave_interrupts)


def _leave_interrupts() -> None:
    """Ctrl-C goes to all processes of a terminal; the one that asked for the work ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _judged_by(
    pool: ProcessPoolExecutor, waiting: Iterable[RunFile], n_processes: int, broken: list[RunFile]
) -> Iterator[tuple[RunFile, Judged]]:
    """What the processes give; those that were under way or waiting when one of them died go to ``broken``."""
    left = iter(waiting)
    running: dict[Future[Judged], RunFile] = {}
    is_broken = False
    while True:
        while not is_broken and len(running) < n_processes * _AHEAD and (file := next(left, None)) is not None:
            try:
                running[pool.submit(judge_file, file)] = file
            except BrokenProcessPool:
                is_broken = True
                broken.append(file)
        if not running:
            break
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            file = running.pop(future)
            try:
                yield file, future.result()
            except BrokenProcessPool:
                is_broken = True
                broken.append(file)
    broken.extend(left)


def _alone(file: RunFile) -> Judged:
    """In a process of its own, so that the one which dies is known."""
    try:
        with _pool(1) as pool:
            return pool.submit(judge_file, file).result()
    except BrokenProcessPool:
        return LeftOut(file.label, slug="unjudged-run", reason="ended the process that judged it (out of memory?)")
