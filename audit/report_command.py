"""``rocm-audit report DIR``: judges a stored run again. Needs no torch."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from audit.option_values import FORMATS, formats, statuses
from audit.printed_result import print_judgement
from audit.terminal import add_output_options

_EPILOG = """examples:
  rocm-audit report reports/model                          judge again by today's rules; writes the page anew
  rocm-audit report reports/model --format html,junit,csv  more forms of it
  rocm-audit report reports/amd --compare reports/nvidia   the same calls on both, side by side
  rocm-audit report reports/model -o elsewhere --json
  rocm-audit report reports/model --names m.audit.names    with the names of a private trace
exit codes: 0 finished, 1 --fail-on tripped, 2 wrong use, 3 could not write"""


def add_report(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="judge a stored run again and write reports; needs no GPU and no torch",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
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
        "--compare",
        type=Path,
        metavar="OTHER",
        help="set another device's times beside these: a run folder, or a profiler's trace",
    )
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
    add_output_options(parser)
    parser.set_defaults(command=_report)


def _report(options: argparse.Namespace) -> int:
    from audit.judged_folder import report

    judgement = report(options.folder, options.format, options.output, options.names, options.compare)
    print_judgement(judgement, options.output or options.folder, options)
    return 1 if judgement.has_any(options.fail_on) else 0
