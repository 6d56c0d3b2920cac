"""A run that another tool has measured, put into a run folder, and another device's beside it."""

from __future__ import annotations

from pathlib import Path

from audit.errors import UsageError
from audit.rules.speed import TIMED
from audit.run_folder import OTHER_FILE, RUN_FILE
from audit.run_records import Run, RunEnd
from audit.store import RunWriter, read_run
from audit.targets import Target, find_target


def is_finished(target: Target) -> bool:
    """Whether the target is a recording that was measured already, so that nothing is replayed."""
    return target.importer is not None and target.importer.gives == "run"


def finished_run(target: Target) -> Run:
    """What the recording holds. Raises UsageError."""
    assert target.importer is not None
    run = target.importer.read(target.path)
    assert isinstance(run, Run), "an importer that gives runs"
    return run


def find_other(name: Path) -> Run:
    """Another device's run, of a recording or a run folder. Raises UsageError."""
    if not name.exists():
        raise UsageError(f"--compare {name}: there is no such file or folder", "no-target")
    other = _other(name)
    if other is None or other.header.device.backend not in TIMED:
        of = "" if other is None else f": a run on {other.header.device.backend}"
        raise UsageError(
            f"--compare {name}: expected a profiler's trace or a run folder of a GPU, got something that has no device "
            f"times{of}",
            "bad-arguments",
        )
    return other


def _other(name: Path) -> Run | None:
    if name.is_dir() or name.suffix == ".jsonl":
        return read_run(name)
    target = find_target(str(name), False, ())
    return finished_run(target) if is_finished(target) else None


def write_run(run: Run, folder: Path) -> RunEnd:
    """Puts the run into the folder, whole. Raises UsageError or UnfinishedError where it cannot be written."""
    return _write(run, folder / RUN_FILE)


def write_other(run: Run, folder: Path) -> None:
    """Puts the run beside the folder's own, where the reports look for it."""
    _write(run, folder / OTHER_FILE)


def _write(run: Run, path: Path) -> RunEnd:
    end = run.end or RunEnd(False, "the run was not finished")
    with RunWriter.create(path, run.header, run.cases) as writer:
        writer.all_measured(run.measurements.values())
        writer.end(end)
    return end
