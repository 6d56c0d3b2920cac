"""What a run, a trace or a report says at its end: the result on stdout, what is wrong with it on stderr."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from audit.report.text import printable
from audit.run_records import Run
from audit.schema import NotAudited, Source
from audit.terminal import has_colour, print_result, terminal_width
from audit.verdicts import Judgement


def print_judgement(judgement: Judgement, folder: Path, options: argparse.Namespace) -> None:
    """As a person or a machine wants it, behind what is wrong with the file; ``folder`` is where the page is."""
    from audit.report.summary import summary
    from audit.report.terminal import render_terminal

    print_warnings(judgement.run)
    if options.json:
        print_result(summary(judgement))
        return
    home = folder if folder.suffix != ".jsonl" else folder.parent
    page = home / "report.html" if "html" in options.format else None
    print_result(render_terminal(judgement, terminal_width(), has_colour(sys.stdout), page, options.verbose))


def print_warnings(run: Run) -> None:
    """What is wrong with a run file and did not keep it from being read."""
    for warning in run.warnings:
        print(f"rocm-audit: {printable(warning)}", file=sys.stderr)


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
