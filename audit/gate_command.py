"""``rocm-audit gate BASELINE CANDIDATE``: reads both sides, compares, prints, writes, exits. Needs no torch.

Only ``--self-test`` replays something, on the simulated device.
"""

from __future__ import annotations

import argparse
import datetime
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import audit
from audit.errors import UnfinishedError, UsageError
from audit.option_values import gate_formats
from audit.printed_result import print_warnings
from audit.terminal import add_output_options, has_colour, print_result, terminal_width

if TYPE_CHECKING:
    from audit.gate.outcome import GateOutcome
    from audit.gate.side import Side

_EPILOG = """examples:
  rocm-audit gate baseline out               compare the run in out with the one in baseline
  rocm-audit gate expected.json out          or with expectations that are kept in the repository
  rocm-audit gate expected.json out --promote --force   accept the candidate as the new baseline
  rocm-audit gate baseline out --policy policy.toml --format markdown,junit
exit codes: 0 passed, 1 failed, 2 wrong use or not comparable, 3 the candidate is empty or no whole run"""


def add_gate(commands: Any) -> None:
    """Adds its parser to the subparsers of the command line."""
    parser = commands.add_parser(
        "gate",
        help="compare two runs and fail on what got worse; needs no GPU and no torch",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("baseline", type=Path, nargs="?", help="a run folder, its run.jsonl, or expectations (*.json)")
    parser.add_argument("candidate", type=Path, nargs="?", help="the same")
    parser.add_argument("--policy", type=Path, metavar="FILE", help="ratios, levels and waivers, in TOML")
    parser.add_argument(
        "--format", type=gate_formats, default=(), metavar="LIST", help="files to write: markdown,junit,json,sarif"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where to write them (the candidate's folder)")
    parser.add_argument("--annotate", action="store_true", help="print GitHub annotations too")
    parser.add_argument("--promote", action="store_true", help="write the candidate as the baseline")
    parser.add_argument("--force", action="store_true", help="with --promote: replace the baseline that is there")
    parser.add_argument(
        "--allow-other-evidence", action="store_true", help="compare a measured run with a simulated one, and the like"
    )
    parser.add_argument("--allow-other-gpu", action="store_true", help="compare runs of two kinds of GPU")
    parser.add_argument(
        "--allow-incomplete", action="store_true", help="compare what there is of a run that was cut short"
    )
    parser.add_argument(
        "--self-test", action="store_true", help="plant faults in a replay on sim and prove that the gate fails"
    )
    add_output_options(parser)
    parser.set_defaults(command=_gate)


def _gate(options: argparse.Namespace) -> int:
    if options.self_test:
        if options.baseline is not None:
            raise UsageError("--self-test replays cases of its own; give no runs", "bad-arguments")
        from audit.gate_selftest import print_self_test

        return print_self_test(options.json, options.quiet)
    if options.baseline is None or options.candidate is None:
        raise UsageError("give two runs: rocm-audit gate BASELINE CANDIDATE", "bad-arguments")
    if options.promote:
        return _promote(options)
    from audit.gate.outcome import Allowed, gate
    from audit.gate.place import anchor_of
    from audit.gate.policy import Policy, read_policy
    from audit.gate.registry import write

    if _run_file(options.baseline).resolve() == _run_file(options.candidate).resolve():
        print("rocm-audit: both sides of the gate are the same run [same-run]", file=sys.stderr)
    policy = Policy() if options.policy is None else read_policy(options.policy)
    allowed = Allowed(options.allow_other_evidence, options.allow_other_gpu, options.allow_incomplete)
    today = datetime.datetime.now(datetime.timezone.utc).date()
    baseline, candidate = read_side(options.baseline), _candidate(options.candidate)
    outcome = replace(
        gate(baseline, candidate, policy, today, allowed),
        anchor=anchor_of(_run_file(options.baseline)),
        audit_version=audit.__version__,
    )
    write(outcome, options.format, options.output or _home(options.candidate))
    _print(outcome, options)
    if outcome.conclusion == "not finished":
        raise UnfinishedError("the candidate is no whole run, and nothing can be said of it", "incomplete-candidate")
    return outcome.exit_code


def read_side(path: Path) -> Side:
    """A run, judged by today's rules, or an expectations file. Raises UsageError."""
    from audit.gate.side import read_expectations, side_of
    from audit.rules.judge import judge
    from audit.store import read_run

    if path.suffix == ".json":
        return read_expectations(path)
    run = read_run(path)
    print_warnings(run)
    return side_of(judge(run))


def _candidate(path: Path) -> Side:
    """Raises UnfinishedError where an audit began there and left nothing."""
    run_file = _run_file(path)
    is_empty = not run_file.exists() if path.is_dir() else run_file.is_file() and run_file.stat().st_size == 0
    if is_empty:
        raise UnfinishedError(f"the candidate {path} holds no run: the audit left nothing", "incomplete-candidate")
    return read_side(path)


def _run_file(path: Path) -> Path:
    return path / "run.jsonl" if path.is_dir() else path


def _home(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _promote(options: argparse.Namespace) -> int:
    from audit.gate.promotion import promote
    from audit.report.text import one_line

    side = _candidate(options.candidate)
    if side.incomplete and not (options.allow_incomplete and side.cases):
        raise UnfinishedError(
            f"the candidate is no whole run ({one_line(side.incomplete)}) and makes no baseline", "incomplete-candidate"
        )
    run_file = None if options.candidate.suffix == ".json" else _run_file(options.candidate)
    written = promote(side, run_file, options.baseline, options.force)
    if options.json:
        print_result(
            {"format_version": 1, "baseline": str(written), "n_cases": len(side.cases), "evidence": side.evidence}
        )
    else:
        print(f"{written}: the baseline from now on, {len(side.cases)} cases, {side.evidence}")
    return 0


def _print(outcome: GateOutcome, options: argparse.Namespace) -> None:
    from audit.gate import annotations, record
    from audit.gate.terminal import render_terminal

    if options.json:
        print_result(record.record(outcome))
    else:
        print_result(render_terminal(outcome, terminal_width(), has_colour(sys.stdout), options.verbose))
    if options.annotate:  # a CI server reads both streams; beside one document on stdout nothing else may stand
        (sys.stderr if options.json else sys.stdout).write(annotations.render(outcome))
