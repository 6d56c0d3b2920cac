"""The folder of a run: made, held by one audit at a time, and cleared of the run before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from audit.errors import UsageError

RUN_FILE = "run.jsonl"
CASES_FILE = "cases.audit"
#: Another device's run, beside which the reports set this one.
OTHER_FILE = "other.jsonl"


def find_folder(folder: Path) -> None:
    """Raises UsageError where there is no run to resume."""
    if not (folder / RUN_FILE).exists():
        raise UsageError(f"nothing to resume: {folder / RUN_FILE} does not exist", "nothing-to-resume")


def make_folder(folder: Path) -> None:
    """Makes the folder. Raises UsageError where it cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"cannot write to {folder}: {error.strerror}; choose another folder with -o", "unwritable-output"
        ) from error


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Makes the folder; it goes again where it is new and what was asked for turns out to be wrong use."""
    is_new = not folder.exists()
    make_folder(folder)
    try:
        yield
    except UsageError:
        if is_new:
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keeps other audits out of the folder; the kernel lets go when this process dies. Raises UsageError."""
    import fcntl  # not on every system that reads and judges run files

    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise UsageError(
            f"another audit is writing to {folder}; wait for it, or choose another folder with -o", "busy"
        ) from error
    except OSError:  # a file system without locks
        pass
    try:
        yield
    finally:
        os.close(descriptor)


def check_no_run(folder: Path, force: bool) -> None:
    """Raises UsageError when the folder holds a run already and not ``force``."""
    if os.path.lexists(folder / RUN_FILE) and not force:
        raise UsageError(f"{folder} holds a run already; use --force to replace it or --resume to go on", "exists")


def clear_folder(folder: Path, keeps_trace: bool) -> None:
    """Removes what a new run replaces; ``keeps_trace`` where the trace that lies there is the new one's already."""
    from audit.gate.registry import GATE_FORMATS
    from audit.report.registry import REPORTERS

    # All that a run writes: a report or a repro script of the run before would pass for one of this.
    reports = [reporter.file_name for reporter in REPORTERS.values()]
    names = (RUN_FILE, OTHER_FILE, *reports, *(form.file_name for form in GATE_FORMATS.values()))
    scripts = folder / "repro"
    others = (scripts,) if scripts.is_symlink() else scripts.glob("*.py")  # what lies behind a link is not ours
    for stale in (*(folder / name for name in names), *others):
        stale.unlink(missing_ok=True)
    if not keeps_trace:
        (folder / CASES_FILE).unlink(missing_ok=True)
