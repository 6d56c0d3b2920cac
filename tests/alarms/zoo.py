"""The calls of the zoo's programs as cases, in place of those of the samples."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from audit.opset.file import extract_values, read_opset
from tests.alarms.recorded import Recorded, in_rounds
from tests.zoo import table


def traced(folder: Path, patterns: Sequence[str] = ("*",)) -> Path:
    """The merged trace of the programs whose name fits one of the globs.

    What ``folder`` holds is not made again, so the traces can come from another machine, in ``folder/merged``: one
    that replays them may lack the zoo's packages.
    """
    merged = table.merged_trace(folder)
    if not merged.exists():
        folder.mkdir(parents=True, exist_ok=True)
        names = [name for name, _ in table.programs() if any(fnmatchcase(name, glob) for glob in patterns)]
        table.merge([table.trace(name, folder) for name in names], merged)
    return merged


def recorded(trace: Path, scratch: Path, shard: int = 0, n_shards: int = 1) -> Recorded:
    """Every ``n_shards``-th case of a trace; the first shard has the programs, so that a sum over shards is right."""
    found = read_opset(trace)
    merged_from = (re.fullmatch(r"merged from (\d+) files", note) for note in found.notes)
    n_programs = next((int(said[1]) for said in merged_from if said), 1)
    cases = in_rounds(found.cases)[shard::n_shards]
    return Recorded(tuple(cases), extract_values(trace, scratch), n_programs if shard == 0 else 0, 0, "zoo")
