"""A run folder, judged: its run, another device's beside it where there is one, and the reports. Needs no torch."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from audit.errors import UsageError
from audit.imported_run import find_other, write_other
from audit.opset import extract_values
from audit.privacy.name_map import read_map, with_names
from audit.rules.judge import judge
from audit.rules.speed import TIMED
from audit.run_folder import CASES_FILE, OTHER_FILE
from audit.run_records import Run
from audit.store import read_run
from audit.verdicts import Judgement


def judge_folder(folder: Path, formats: Sequence[str], other: Run | None = None) -> Judgement:
    """Judges the run that was just written to the folder, and writes its reports there."""
    if other is not None:
        write_other(other, folder)
    judgement = judge(read_run(folder), other=_other(folder))
    write_reports(judgement, formats, folder)
    return judgement


def report(
    folder: Path, formats: Sequence[str], output: Path | None, maps: Sequence[Path] = (), compare: Path | None = None
) -> Judgement:
    """Judges a stored run again and writes its reports, with the names of ``maps``; needs no GPU and no torch.

    ``compare`` is set beside it, and stays beside it where the reports go into the run's own folder.
    """
    home = folder if folder.is_dir() else folder.parent
    run = read_run(folder)
    other = _other(home) if compare is None else _beside(run, compare)
    judgement = judge(with_names(run, [read_map(path) for path in maps]), other=other)
    if compare is not None and other is not None and output is None:
        write_other(other, home)
    write_reports(judgement, formats, output or home)
    return judgement


def _beside(run: Run, compare: Path) -> Run:
    backend = run.header.device.backend
    if backend not in TIMED:
        raise UsageError(
            f"--compare sets times of a GPU beside times of a GPU, and a run on {backend} has none", "bad-arguments"
        )
    return find_other(compare)


def _other(folder: Path) -> Run | None:
    path = folder / OTHER_FILE
    return read_run(path) if path.exists() else None


def write_reports(judgement: Judgement, formats: Sequence[str], folder: Path) -> None:
    """Every report asked for, and a repro script for each finding, with its recorded values where the trace is here."""
    from audit.report.registry import write

    with tempfile.TemporaryDirectory(prefix="rocm-audit-") as scratch:
        cases_file = folder / CASES_FILE
        values = extract_values(cases_file, Path(scratch)) if cases_file.exists() else None
        write(judgement, formats, folder, values)
