"""A candidate becomes the baseline: the run file as it is, or its expectations, whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from audit.errors import UnfinishedError, UsageError
from audit.gate.side import Side, expectations_text


def promote(side: Side, run_file: Path | None, baseline: Path, force: bool) -> Path:
    """Writes the baseline and returns its path: ``*.json`` gets expectations, else ``run_file`` is copied.

    Raises UsageError where something is there and not ``force``, or a run is asked for and there is none;
    UnfinishedError where it cannot be written.
    """
    if baseline.suffix == ".json":
        return _put(baseline, expectations_text(side).encode(), force)
    if run_file is None:
        raise UsageError(
            f"the candidate is an expectations file, and {baseline} would be a run; name a baseline that ends in .json",
            "bad-arguments",
        )
    target = baseline if baseline.suffix == ".jsonl" else baseline / "run.jsonl"
    try:
        if target.exists() and target.samefile(run_file):
            raise UsageError(f"{target} is the candidate itself; name another baseline", "bad-arguments")
        content = run_file.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the run file {run_file}: {error.strerror}", "unreadable-run") from error
    return _put(target, content, force)


def _put(target: Path, content: bytes, force: bool) -> Path:
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if force:
            os.replace(partial, target)
        else:
            _link(partial, target)
    except FileExistsError as error:
        raise UsageError(f"{target} exists; use --force to replace it", "exists") from error
    except OSError as error:
        raise UnfinishedError(
            f"cannot write {target}: {error.strerror or error}; free space or choose another place", "unwritable-output"
        ) from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    return target


def _link(partial: Path, target: Path) -> None:
    """Puts the file there only if nothing is: in one step, where the file system has links."""
    try:
        os.link(partial, target)
    except FileExistsError:
        raise
    except OSError:
        if target.exists():
            raise FileExistsError(target) from None
        os.replace(partial, target)
