"""What a run, a trace or a report says at its end: the result on stdout, what is wrong with it on stderr."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.schema import NotAudited, Source
from audit.verdicts import Judgement


def print_result(judgement: Judgement, folder: Path, formats: Sequence[str]) -> None:
    from audit.report.terminal import render_terminal

    colour = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns
    page = (folder if folder.suffix != ".jsonl" else folder.parent) / "report.html" if "html" in formats else None
    sys.stdout.write(render_terminal(judgement, width, colour, page))


def print_missed(source: Source, not_audited: Sequence[NotAudited]) -> bool:
    """Says that a trace is not portable; whether it had to."""
    from audit.rules.not_audited import missed_composites

    missed = list(missed_composites(source.name, not_audited))
    for finding in missed:
        print(f"rocm-audit: {finding.message} [device-specific-op]", file=sys.stderr)
    return bool(missed)


def print_early_end(source: Source) -> None:
    """An audit of half a program is not one of the program: said last, so that it is read."""
    if source.error:
        error = " ".join(source.error.split())
        print(f"rocm-audit: the program ended early: {error} [program-ended]", file=sys.stderr)
