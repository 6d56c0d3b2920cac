"""``rocm-audit run TARGET``: trace, replay, judge, report."""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

from audit.option_values import FORMATS, duration, formats, positive, statuses
from audit.printed_result import print_early_end, print_judgement, print_missed
from audit.target_options import add_target, recording_options, target_of
from audit.terminal import add_output_options, stdout_for_the_result

_EPILOG = """examples:
  rocm-audit run model.py                            trace, replay on the GPU here, judge, report
  rocm-audit run model.py -o out -- --batch 8        what follows -- is the script's own
  rocm-audit run m.audit --device hip --time-budget 15m
  rocm-audit run m.audit --resume -o out             go on after Ctrl-C, or after a crash
  rocm-audit run m.audit --fail-on divergent,unsupported --json
  rocm-audit run mi300x.json.gz --compare h100.json.gz
exit codes: 0 finished, 1 --fail-on tripped, 2 wrong use, 3 could not finish"""


def add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="trace, replay, judge, report",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser)
    parser.add_argument("--device", default="auto", help="auto, hip, cuda, sim, sim:faults.py or none (auto)")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="the run folder (reports/NAME)")
    parser.add_argument(
        "--format",
        type=formats,
        default=("html", "json"),
        metavar="LIST",
        help=f"reports to write: {','.join(FORMATS)}",
    )
    parser.add_argument(
        "--fail-on",
        type=statuses,
        default=frozenset(),
        metavar="LIST",
        help="exit 1 when a case has one of these statuses",
    )
    parser.add_argument(
        "--compare",
        type=Path,
        metavar="OTHER",
        help="set another device's times beside these: a profiler's trace, or a run folder",
    )
    parser.add_argument(
        "--drift",
        action="store_true",
        help="then play the first step whole, on the device beside the CPU: where accumulated error starts",
    )
    _add_limits(parser)
    add_output_options(parser)
    parser.set_defaults(command=_run)


def _add_limits(parser: argparse.ArgumentParser) -> None:
    """How long a replay may take, and what becomes of one that was cut short."""
    parser.add_argument(
        "--time-budget",
        type=duration,
        metavar="TIME",
        help="stop replaying after 90s, 15m, 2h; what costs most goes first",
    )
    parser.add_argument(
        "--alternatives",
        type=duration,
        default=60.0,
        metavar="TIME",
        help="then try other layouts, libraries and dtypes on what has a finding, for so long (60s); 0 for none",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in the folder; a case that was under way is not run again",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="measure all cases, also those measured on this stack in the last days"
    )
    parser.add_argument(
        "--retry-started", action="store_true", help="with --resume: run the case that was under way again"
    )
    parser.add_argument(
        "--confirm-hangs",
        action="store_true",
        help="run a case that hung once more (on AMD a second hang may need a power-off)",
    )
    parser.add_argument(
        "--first-call-limit",
        type=duration,
        default=180.0,
        metavar="TIME",
        help="a first call longer than this hangs (180s)",
    )
    parser.add_argument(
        "--steady-limit", type=duration, default=60.0, metavar="TIME", help="a later call longer than this hangs (60s)"
    )
    parser.add_argument(
        "--repeats", type=positive, default=2, metavar="N", help="runs of each case compared bitwise, at least two (2)"
    )


def _run(options: argparse.Namespace) -> int:
    from audit.progress import Progress
    from audit.session import run

    target = target_of(options)
    output = options.output or Path("reports", re.sub(r"[^\w.-]+", "_", target.stem))
    asked = dataclasses.replace(
        recording_options(options, target, output),
        device=options.device,
        compare=options.compare,
        drift=options.drift,
        time_budget_s=options.time_budget,
        alternatives_limit_s=options.alternatives,
        resume=options.resume,
        retry_started=options.retry_started,
        fresh=options.fresh,
        confirm_hangs=options.confirm_hangs,
        first_call_limit_s=options.first_call_limit,
        steady_limit_s=options.steady_limit,
        n_repeats=max(options.repeats, 2),
        formats=options.format,
        fail_on=options.fail_on,
    )
    with stdout_for_the_result(options.json), Progress(options.quiet, options.verbose) as progress:
        judgement, code = run(asked, progress)
    print_judgement(judgement, output, options)
    print_early_end(judgement.run.header.source)
    header = judgement.run.header
    print_missed(header.source, header.not_audited)
    if not judgement.verdicts:
        calls = f"{header.n_recorded} recorded calls"
        print(
            f"rocm-audit: no case came of {calls} of {header.source.name}; nothing was judged [no-ops]", file=sys.stderr
        )
    return code
