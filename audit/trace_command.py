"""``rocm-audit trace TARGET``: records a program, and replays nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from audit.printed_result import print_early_end, print_missed
from audit.target_options import add_target, recording_options, target_of


def add_trace(commands: Any) -> None:
    parser = commands.add_parser(
        "trace",
        help="record only; a file that travels",
        epilog="`trace show`, `trace diff` and `trace merge` look into such files; a script called show is ./show",
    )
    add_target(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the trace (NAME.audit)")
    parser.set_defaults(command=_trace)


def _trace(options: argparse.Namespace) -> int:
    from audit.session import trace_only
    from audit.timed_trace import is_run

    if options.target is not None and is_run(Path(options.target)):
        return _trace_of_run(options, Path(options.target))
    target = target_of(options)
    is_copy = target.kind == "opset"
    output = options.output or Path(f"{target.stem}{'.private' if is_copy else ''}.audit")
    trace, path = trace_only(recording_options(options, target, output))
    print(f"{path}: {len(trace.cases)} cases from {trace.n_recorded} calls")
    for item in trace.not_audited:
        times = f"{item.n_calls} calls" if item.n_calls else f"{item.n_seen} times"
        print(f"  not audited: {item.what} ({item.reason}, {times})")
    print_early_end(trace.source)
    return 3 if print_missed(trace.source, trace.not_audited) or trace.source.error else 0


def _trace_of_run(options: argparse.Namespace, folder: Path) -> int:
    from audit.timed_trace import write_timed_trace

    output = options.output or Path(f"{folder.resolve().name}.audit")
    trace = write_timed_trace(folder, output, options.force)
    assert trace.elsewhere is not None, "a timed trace"
    times = trace.elsewhere
    print(f"{output}: {len(trace.cases)} cases, {len(times.times)} with their times on {times.device.name}")
    return 0
