"""``rocm-audit report DIR``: judges a stored run again. Needs no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from audit.option_values import FORMATS, formats, statuses
from audit.printed_result import print_result


def add_report(commands: Any) -> None:
    parser = commands.add_parser("report", help="judge a stored run again and write reports; needs no GPU and no torch")
    parser.add_argument("folder", type=Path, help="a run folder, or its run.jsonl")
    parser.add_argument(
        "--format",
        type=formats,
        default=("html", "json"),
        metavar="LIST",
        help=f"reports to write: {','.join(FORMATS)}",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write them (the run folder)")
    parser.add_argument(
        "--names",
        type=Path,
        action="append",
        default=[],
        metavar="MAP",
        help="restore the names of a private trace; the reports then hold them",
    )
    parser.add_argument(
        "--fail-on",
        type=statuses,
        default=frozenset(),
        metavar="LIST",
        help="exit 1 when a case has one of these statuses",
    )
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    from audit.judged_folder import report

    judgement = report(options.folder, options.format, options.output, options.names)
    print_result(judgement, options.output or options.folder, options.format)
    return 1 if judgement.has_any(options.fail_on) else 0
