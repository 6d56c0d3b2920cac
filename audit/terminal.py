"""How every command speaks: its result on stdout, as text or JSON; progress and problems on stderr.

What the options mean is one thing for all commands. See docs/command-line.md.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any, TextIO


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """``--json``, ``-q`` and ``-v``, with the same meaning in every command."""
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    amount = parser.add_mutually_exclusive_group()
    amount.add_argument("-q", "--quiet", action="store_true", help="no progress: the result, and what is wrong")
    amount.add_argument(
        "-v", "--verbose", action="store_true", help="cut nothing short: each case, finding, difference"
    )


def has_colour(stream: TextIO) -> bool:
    """Whether ``stream`` shows colours: NO_COLOR, then FORCE_COLOR, then TERM, then whether it is a terminal.

    The order is that of Python's own tracebacks. Source: https://no-color.org, https://force-color.org.
    """
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_live(stream)


def is_live(stream: TextIO) -> bool:
    """Whether what was drawn on ``stream`` can be drawn over."""
    return stream.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def terminal_width(otherwise: int = 100) -> int:
    """Columns; COLUMNS in the environment has the last word."""
    return shutil.get_terminal_size((otherwise, 24)).columns


def print_result(result: Any) -> None:
    """Text as it is, anything else as JSON."""
    sys.stdout.write(result if isinstance(result, str) else json.dumps(result, indent=1, allow_nan=False) + "\n")


@contextlib.contextmanager
def stdout_for_the_result(is_json: bool) -> Iterator[None]:
    """With JSON, what the audited program and its children print goes to stderr: stdout is for one document."""
    if not is_json:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def prepare_streams() -> None:
    """Makes stdin, stdout and stderr fit to be used, whatever the caller has left of them.

    A closed one would be the number of the next file that is opened, to which children then print. Names of files need
    not be text, and terminals need not be UTF-8: what cannot be shown is shown as an escape.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up_streams() -> None:
    """Points stdout and stderr at nothing, after their reader went away: the interpreter flushes them as it ends."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a stream of a test has no number
            os.dup2(nothing, stream.fileno())
    os.close(nothing)
