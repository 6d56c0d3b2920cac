"""A file that a command is asked to write: whether it may, known before any work is done for it."""

from __future__ import annotations

import os
from pathlib import Path

from audit.errors import UsageError


def check_output_file(path: Path, force: bool) -> None:
    """Raises UsageError where ``path`` exists and not ``force``, or cannot be written."""
    if path.exists() and not path.is_dir() and not force:
        raise UsageError(f"{path} exists; use --force to replace it", "exists")
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"cannot write {path}: it is a folder, or its folder is missing or read-only; choose another file with -o",
            "unwritable-output",
        )
