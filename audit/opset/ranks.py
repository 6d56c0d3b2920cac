"""The files of a launcher's ranks: what each writes, and the one opset that they stand for."""

from __future__ import annotations

import glob
import os
import re
import shutil
from pathlib import Path

from audit.errors import UsageError
from audit.opset.file import check_values, open_opset, replacing
from audit.opset.merging import merge_opsets
from audit.schema import Trace


def rank_path(path: Path) -> Path:
    """Where this process of a launcher (torchrun, accelerate) writes: ``m.rank3.audit``; without one, ``path``."""
    rank = os.environ.get("RANK")
    if rank is None or int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return path
    return path.with_name(f"{path.stem}.rank{int(rank)}.audit")


def rank_files(path: Path) -> list[Path]:
    """The rank files that stand for ``path``, in order of rank."""
    return sorted(path.parent.glob(f"{glob.escape(path.stem)}.rank*.audit"), key=_rank_of)


def _rank_of(path: Path) -> int:
    match = re.search(r"\.rank(\d+)\.audit$", path.name)
    return int(match.group(1)) if match else 0


def copy_or_merge(path: Path, target: Path) -> Trace:
    """Puts the opset ``path`` at ``target``; where only its rank files are there, their merge."""
    if not path.exists():
        files = rank_files(path)
        if not files:
            raise UsageError(f"no rank files like {path.stem}.rank0.audit to merge", "unreadable-opset")
        return merge_opsets(files, [f"rank {_rank_of(file)}" for file in files], target, "ranks")
    opset = open_opset(path)
    check_values(opset)  # what is damaged is not to take the place of what is not
    if path.resolve() != target.resolve():
        with path.open("rb") as source, replacing(target) as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    return opset.trace
