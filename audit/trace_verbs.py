"""``rocm-audit trace show|diff|merge``: looks into recorded traces and joins them. Needs no torch.

Whether ``show`` is a verb or a script is decided by the word alone, never by what lies in the folder: a script of that
name is called ``./show``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from audit.errors import UsageError
from audit.output_file import check_output_file
from audit.terminal import add_output_options, has_colour, print_result, terminal_width

VERBS = ("show", "diff", "merge")

_SHOW = """examples:
  rocm-audit trace show m.audit                  a row for each op
  rocm-audit trace show m.audit --op 'conv*'     the cases of some ops, in full
  rocm-audit trace show m.audit addmm-7b         a case by the beginning of its key
  rocm-audit trace show m.audit --json"""
_DIFF = """examples:
  rocm-audit trace diff before.audit after.audit
  rocm-audit trace diff before.audit after.audit --json
exit codes: 0 equal, 1 not equal, 2 wrong use"""
_MERGE = """examples:
  rocm-audit trace merge rank0.audit rank1.audit -o both.audit
  rocm-audit trace merge train.audit infer.audit -o all.audit --force"""


def joined(words: list[str]) -> list[str]:
    """``trace show m.audit`` as the command ``trace show`` and its arguments; other words as they are."""
    if words[:1] == ["trace"] and len(words) > 1 and words[1] in VERBS:
        return [f"trace {words[1]}", *words[2:]]
    return words


def add_verbs(commands: Any) -> None:
    """Adds their parsers to the subparsers of the command line."""
    show = _parser(commands, "show", "what an .audit file holds: ops, cases, what is not audited", _SHOW)
    show.add_argument("file", type=Path, nargs="?", metavar="FILE", help="an .audit file")
    show.add_argument("key", nargs="?", metavar="KEY", help="show the cases whose key begins so, in full")
    show.add_argument(
        "--op", metavar="GLOB", help="show the cases of these ops in full: mm, 'conv*', 'aten::_foreach_*'"
    )
    add_output_options(show)
    show.set_defaults(command=_show)

    diff = _parser(commands, "diff", "cases that two traces do not share; exits 1 where there are some", _DIFF)
    diff.add_argument("files", type=Path, nargs="*", metavar="FILE", help="two .audit files")
    diff.add_argument("--all", action="store_true", help="list every differing case")
    add_output_options(diff)
    diff.set_defaults(command=_diff)

    merge = _parser(commands, "merge", "one trace of several: ranks, or programs", _MERGE)
    merge.add_argument("files", type=Path, nargs="*", metavar="FILE", help="two or more .audit files")
    merge.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the merged trace")
    merge.add_argument("--force", action="store_true", help="replace what is there")
    add_output_options(merge)
    merge.set_defaults(command=_merge)


def _parser(commands: Any, verb: str, what: str, examples: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        f"trace {verb}", help=what, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    return parser


def _show(options: argparse.Namespace) -> int:
    from audit.opset.file import open_opset
    from audit.report.opset_rows import case_record, chosen_cases, opset_record, value_bytes_by_key
    from audit.report.opset_terminal import render_cases, render_opset

    if options.file is None:
        raise UsageError("give an .audit file to show; to trace a script called show, write ./show", "bad-arguments")
    opset = open_opset(options.file)
    if options.key is None and options.op is None and not options.verbose:
        print_result(opset_record(opset) if options.json else render_opset(opset, options.file.name, *_terminal()))
        return 0
    cases = chosen_cases(opset.trace.cases, options.key, options.op)
    stored = value_bytes_by_key(opset)
    records = [case_record(case, stored.get(case.key, 0)) for case in cases]
    print_result(records if options.json else render_cases(opset, cases, *_terminal()))
    return 0


def _diff(options: argparse.Namespace) -> int:
    """0 where both recorded the same calls as often, 1 where they did not: the files were asked to be equal."""
    from audit.opset import read_opset
    from audit.opset.difference import difference
    from audit.report.opset_rows import difference_record
    from audit.report.opset_terminal import render_difference

    if len(options.files) != 2:
        raise UsageError(f"give two .audit files to compare, got {len(options.files)}", "bad-arguments")
    a, b = options.files
    found = difference(read_opset(a), read_opset(b))
    names = (str(a), str(b))
    every = options.all or options.verbose
    print_result(
        difference_record(found) if options.json else render_difference(found, names, *_terminal(), every=every)
    )
    return 0 if found.is_equal else 1


def _merge(options: argparse.Namespace) -> int:
    from audit.opset.file import open_opset
    from audit.opset.merging import merge_opsets
    from audit.report.opset_rows import opset_record

    if len(options.files) < 2 or options.output is None:
        raise UsageError("give two or more .audit files to merge, and -o FILE for the result", "bad-arguments")
    check_output_file(options.output, options.force)
    trace = merge_opsets(options.files, [file.name for file in options.files], options.output, "files")
    if options.json:
        print_result({"file": str(options.output), **opset_record(open_opset(options.output))})
        return 0
    print(f"{options.output}: {len(trace.cases)} cases from {trace.n_recorded} calls, {trace.notes[0]}")
    for note in trace.notes[1:]:
        print(f"  {note}")
    return 0


def _terminal() -> tuple[int, bool]:
    """Width of the terminal, and whether it shows colours."""
    return terminal_width(120), has_colour(sys.stdout)
