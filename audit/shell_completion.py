"""``rocm-audit --print-completion SHELL``: what a shell needs to complete commands and options with the Tab key."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from audit.errors import UsageError

#: tcsh is left out: its form knows one level of commands.
SHELLS = ("bash", "zsh")


class PrintCompletion(argparse.Action):
    """Prints the shell's code and ends, as ``--version`` does. shtab, which makes it, is an extra of the package."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, shell: Any, option: str | None = None
    ) -> None:
        try:
            import shtab
        except ModuleNotFoundError as error:
            raise UsageError(
                "completion needs the package shtab, which this Python has not: pip install shtab", "no-package"
            ) from error
        sys.stdout.write(shtab.complete(parser, shell=str(shell)) + "\n")
        parser.exit()


def add_completion(parser: argparse.ArgumentParser) -> None:
    """Adds the option to the parser of all commands."""
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=SHELLS,
        metavar="SHELL",
        help="print completion for bash or zsh (docs/command-line.md)",
    )
