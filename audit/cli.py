"""The command line: parses, has the command do it, turns what goes wrong into a sentence and an exit code.

A command is a file that adds its own parser, with its handler, and a line of ``COMMANDS``.
"""

from __future__ import annotations

import argparse
import errno
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import audit
from audit.config import OPTIONS as CONFIGURABLE
from audit.config import find_options
from audit.dashboard_command import add_dashboard
from audit.doctor_command import add_doctor
from audit.errors import AuditError, UnfinishedError, UsageError
from audit.gate_command import add_gate
from audit.report_command import add_report
from audit.run_command import add_run
from audit.shell_completion import add_completion
from audit.terminal import give_up_streams, prepare_streams
from audit.trace_command import add_trace
from audit.trace_verbs import add_verbs, joined

#: In the order of ``rocm-audit --help``.
COMMANDS: tuple[Callable[[Any], None], ...] = (
    add_run,
    add_trace,
    add_verbs,
    add_report,
    add_gate,
    add_dashboard,
    add_doctor,
)
#: Commands of the design that this version does not have yet; named so that nobody takes them for script names.
PLANNED = ("opset", "predict", "explain", "sources")

_EXAMPLES = """examples:
  rocm-audit model.py                        trace, replay on the GPU here, judge, report
  rocm-audit model.py -- --batch 8           arguments after -- are the script's own
  rocm-audit run -m package.train            the same for a module
  rocm-audit trace model.py -o m.audit       record only: a file that travels
  rocm-audit trace show m.audit              what it holds; also: trace diff, trace merge
  rocm-audit trace llama/config.json --fake  a model of any size, without weights and without memory
  rocm-audit run m.audit --device hip        replay it where an AMD GPU is
  rocm-audit run m.audit --device none       no GPU: what the knowledge base says about it
  rocm-audit run trace.json.gz               a torch.profiler trace of a GPU: time, path, library
  rocm-audit report reports/model --format html,junit
  rocm-audit gate baseline reports/model     fail on what got worse since another run
  rocm-audit dashboard reports -o site       a site from many runs: what works where, what changed
exit codes: 0 finished, 1 --fail-on or a gate tripped, 2 wrong use, 3 could not finish"""


class _Parser(argparse.ArgumentParser):
    """Reports wrong use as every other error: one sentence, its slug, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`", "bad-arguments")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    prepare_streams()
    try:
        options = _parse(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
        code = command(options)
        sys.stdout.flush()  # here, where a reader that went away can be told from a disk that is full
        return code
    except AuditError as error:
        return _fail(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("audit"):
            return _own_fault(error)
        if error.name != "torch":
            needed = f"this Python has no {error.name}, which rocm-audit needs; install rocm-audit into it with pip"
            return _fail(UsageError(needed, "no-package"))
        return _fail(
            UsageError(
                "tracing and replaying need torch, and this Python has none; install the build for your GPU", "no-torch"
            )
        )
    except KeyboardInterrupt:
        return _fail(
            UnfinishedError("interrupted; what was written is kept, and --resume goes on with a run", "interrupted")
        )
    except BrokenPipeError:
        give_up_streams()  # the reader of our output went away; there is nobody left to tell
        return 3
    except MemoryError:
        return _fail(
            UnfinishedError(
                "memory ran out; what was written is kept, and a machine with more can go on", "out-of-memory"
            )
        )
    except OSError as error:  # a full disk or a lost folder, wherever it struck
        if error.errno == errno.ENAMETOOLONG:
            return _fail(UsageError("a name that was given is longer than the file system allows", "name-too-long"))
        _say(f"{error.strerror or error}: {error.filename or 'input or output'} [system-error]")
        return 3
    except Exception as error:  # noqa: BLE001  # our fault; an exit code of 1 would say that a gate tripped
        return _own_fault(error)


def _fail(error: AuditError) -> int:
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return code  # the tracing process has said why already
    _say(str(error))
    return error.exit_code


def _own_fault(error: Exception) -> int:
    """What nobody foresaw, with where it came from: whoever mends it needs the lines."""
    from audit.report.text import printable

    print(printable("".join(traceback.format_exception(error))), end="", file=sys.stderr)
    told = f"a fault of rocm-audit itself: {type(error).__name__}; please report it with the lines above"
    return _fail(UnfinishedError(told, "own-fault"))


def _say(sentence: str) -> None:
    """One line on stderr; names of files and programs in it cannot steer the terminal."""
    from audit.report.text import printable

    print(f"rocm-audit: {printable(' '.join(sentence.splitlines()))}", file=sys.stderr)


def _parse(arguments: list[str]) -> argparse.Namespace:
    own, program = _split(arguments)
    if any(not word or (word.startswith("--") and word.endswith("=")) for word in own):
        raise UsageError("an argument is empty; is a variable of the script not set?", "bad-arguments")
    own = joined(own)
    if own and own[0] in PLANNED:
        raise UsageError(f"`rocm-audit {own[0]}` is not in this version", "not-yet")
    parser, names = _parser()
    if own and own[0] not in names and not (own[0].startswith("-") and own[0] != "-m"):
        own.insert(0, "run")
    options = _with_configuration(parser, own)
    if not hasattr(options, "command"):
        raise UsageError("nothing to do: give a script, or a command; see `rocm-audit --help`", "bad-arguments")
    options.program_arguments = program
    return options


def _with_configuration(parser: argparse.ArgumentParser, own: list[str]) -> argparse.Namespace:
    """Parsed with the options of the configuration before those that were given, which so have the last word."""
    is_read = own and own[0] in CONFIGURABLE and not {"-h", "--help"} & set(own)
    where, tables = find_options(Path()) if is_read else ("", {})
    configured = [f"--{name}={value}" for name, value in tables.get(own[0] if own else "", {}).items()]
    if not configured:
        return parser.parse_args(own)
    try:
        return parser.parse_args([own[0], *configured, *own[1:]])
    except UsageError as error:
        parser.parse_args(own)  # raises where the fault is in what was typed
        reason = str(error).removesuffix(f" [{error.slug}]")
        raise UsageError(f"{where}: {reason}", "bad-configuration") from error


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own arguments and, behind ``--``, the program's."""
    if "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


def _parser() -> tuple[argparse.ArgumentParser, tuple[str, ...]]:
    """The parser, and the names of its commands."""
    parser = _Parser(
        prog="rocm-audit",
        description="Which aten ops of a model run on a HIP device, right, fast, and on the path one expects.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rocm-audit {audit.__version__}")
    add_completion(parser)
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)
    for add in COMMANDS:
        add(commands)
    return parser, tuple(commands.choices)


if __name__ == "__main__":
    sys.exit(main())
