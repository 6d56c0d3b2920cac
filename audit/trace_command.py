"""``rocm-audit trace TARGET``: records a program, and replays nothing."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from audit.printed_result import print_early_end, print_missed
from audit.report.text import one_line
from audit.schema import Trace
from audit.target_options import add_target, recording_options, target_of
from audit.terminal import add_output_options, has_colour, print_result, stdout_for_the_result, terminal_width

_EPILOG = """examples:
  rocm-audit trace model.py -o m.audit               record the program; it needs no GPU
  rocm-audit trace model.py --steps 1 -- --batch 8   what follows -- is the script's own
  rocm-audit trace llama/config.json --fake          shapes only: no weights, no memory
  rocm-audit trace m.audit --private -o given.audit  a copy without values and names
  rocm-audit trace reports/model -o timed.audit      a run on a GPU, as a trace with its times
`trace show`, `trace diff` and `trace merge` look into such files; a script called show is ./show"""


def add_trace(commands: Any) -> None:
    parser = commands.add_parser(
        "trace",
        help="record only; a file that travels",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_target(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the trace (NAME.audit)")
    add_output_options(parser)
    parser.set_defaults(command=_trace)


def _trace(options: argparse.Namespace) -> int:
    from audit.recorded_trace import trace_only
    from audit.timed_trace import is_run

    if options.target is not None and is_run(Path(options.target)):
        return _trace_of_run(options, Path(options.target))
    target = target_of(options)
    is_copy = target.kind == "opset"
    output = options.output or Path(f"{target.stem}{'.private' if is_copy else ''}.audit")
    if not options.quiet:
        print(f"tracing {one_line(target.name)}", file=sys.stderr, flush=True)
    with stdout_for_the_result(options.json):
        trace, path = trace_only(recording_options(options, target, output))
    _print(trace, path, options)
    print_early_end(trace.source)
    return 3 if print_missed(trace.source, trace.not_audited) or trace.source.error else 0


def _trace_of_run(options: argparse.Namespace, folder: Path) -> int:
    from audit.timed_trace import write_timed_trace

    output = options.output or Path(f"{folder.resolve().name}.audit")
    trace = write_timed_trace(folder, output, options.force)
    assert trace.elsewhere is not None, "a timed trace"
    times = trace.elsewhere
    sentence = f"{len(trace.cases)} cases, {len(times.times)} with their times on {one_line(times.device.name)}"
    if options.json:
        _print(trace, output, options)
    else:
        print(f"{output}: {sentence}")
    return 0


def _print(trace: Trace, path: Path, options: argparse.Namespace) -> None:
    from audit.opset.file import open_opset
    from audit.report.opset_rows import opset_record
    from audit.report.opset_terminal import render_opset

    if options.json:
        print_result({"file": str(path), **opset_record(open_opset(path))})
        return
    if options.verbose:
        print_result(render_opset(open_opset(path), str(path), terminal_width(120), has_colour(sys.stdout)))
        return
    print(f"{path}: {len(trace.cases)} cases from {trace.n_recorded} calls")
    for item in trace.not_audited:
        times = f"{item.n_calls} calls" if item.n_calls else f"{item.n_seen} times"
        print(f"  not audited: {one_line(item.what)} ({one_line(item.reason)}, {times})")
