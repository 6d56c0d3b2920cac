"""The command line. Parses, hands over to the session, prints results to stdout and problems to stderr."""

from __future__ import annotations

import argparse
import dataclasses
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import audit
from audit.config import OPTIONS as CONFIGURABLE
from audit.config import find_options
from audit.errors import AuditError, UnfinishedError, UsageError
from audit.gate_command import add_gate
from audit.option_values import FORMATS, duration, formats, positive, size, statuses
from audit.schema import NotAudited, Source
from audit.trace_verbs import VERBS, add_verbs, joined
from audit.verdicts import Judgement

if TYPE_CHECKING:
    from audit.session import RunOptions
    from audit.targets import Target

COMMANDS = ("run", "trace", *(f"trace {verb}" for verb in VERBS), "report", "gate", "doctor")
#: Commands of the design that this version does not have yet; named so that nobody takes them for script names.
PLANNED = ("dashboard", "opset", "predict", "explain", "sources")
DTYPES = ("float32", "bfloat16", "float16")

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
exit codes: 0 finished, 1 --fail-on or a gate tripped, 2 wrong use, 3 could not finish"""


class _Parser(argparse.ArgumentParser):
    """Reports wrong use as every other error: one sentence, its slug, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`", "bad-arguments")


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parse(arguments)
        command: Callable[[argparse.Namespace], int] = options.command
        return command(options)
    except AuditError as error:
        return _fail(error)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        return _fail(
            UsageError(
                "tracing and replaying need torch, and this Python has none; install the build for your GPU", "no-torch"
            )
        )
    except KeyboardInterrupt:
        return _fail(
            UnfinishedError("interrupted; a run that was begun is kept, and --resume goes on with it", "interrupted")
        )
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; there is nobody left to tell
        return 3
    except OSError as error:  # a full disk or a lost folder, wherever it struck
        print(
            f"rocm-audit: {error.strerror or error}: {error.filename or 'input or output'} [system-error]",
            file=sys.stderr,
        )
        return 3


def _fail(error: AuditError) -> int:
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return code  # the tracing process has said why already
    print(f"rocm-audit: {error}", file=sys.stderr)
    return error.exit_code


def _parse(arguments: list[str]) -> argparse.Namespace:
    own, program = _split(arguments)
    own = joined(own)
    if own and own[0] in PLANNED:
        raise UsageError(f"`rocm-audit {own[0]}` is not in this version", "not-yet")
    if own and own[0] not in COMMANDS and not (own[0].startswith("-") and own[0] != "-m"):
        own.insert(0, "run")
    options = _with_configuration(own)
    if not hasattr(options, "command"):
        raise UsageError("nothing to do: give a script, or a command; see `rocm-audit --help`", "bad-arguments")
    options.program_arguments = program
    return options


def _with_configuration(own: list[str]) -> argparse.Namespace:
    """Parsed with the options of the configuration before those that were given, which so have the last word."""
    is_read = own and own[0] in CONFIGURABLE and not {"-h", "--help"} & set(own)
    where, tables = find_options(Path()) if is_read else ("", {})
    configured = [f"--{name}={value}" for name, value in tables.get(own[0] if own else "", {}).items()]
    if not configured:
        return _parser().parse_args(own)
    try:
        return _parser().parse_args([own[0], *configured, *own[1:]])
    except UsageError as error:
        _parser().parse_args(own)  # raises where the fault is in what was typed
        reason = str(error).removesuffix(f" [{error.slug}]")
        raise UsageError(f"{where}: {reason}", "bad-configuration") from error


def _split(arguments: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Our own arguments and, behind ``--``, the program's."""
    if "--" not in arguments:
        return arguments, ()
    at = arguments.index("--")
    return arguments[:at], tuple(arguments[at + 1 :])


# --- options -----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="rocm-audit",
        description="Which aten ops of a model run on a HIP device, right, fast, and on the path one expects.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"rocm-audit {audit.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)
    _add_run(commands)
    _add_trace(commands)
    add_verbs(commands)
    _add_report(commands)
    add_gate(commands)
    _add_doctor(commands)
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        nargs="?",
        help="a Python script, a file that defines model and inputs, a config.json, a .pt2 or .audit file, or what "
        "another tool recorded: an operator-input log, an execution trace, a profiler's trace",
    )
    parser.add_argument("-m", dest="module", metavar="MODULE", help="trace a module as `python -m MODULE` would run it")
    parser.add_argument(
        "--steps", type=positive, default=2, help="end the program after so many optimizer steps or forward calls (2)"
    )
    parser.add_argument("--mode", choices=("infer", "train"), help="for a file that defines a model: what one step is")
    parser.add_argument("--batch", type=positive, metavar="N", help="for a config.json: how many inputs (1)")
    parser.add_argument("--seq", type=positive, metavar="N", help="for a config.json: tokens or samples of each")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="for a config.json: of its weights (what it says, else float32)"
    )
    parser.add_argument(
        "--fake", action="store_true", help="trace shapes only: allocates nothing, so that a 70B model fits a laptop"
    )
    parser.add_argument(
        "--values",
        type=size,
        default=1 << 30,
        metavar="BYTES",
        help="keep so much of the argument values (1G; 0: none)",
    )
    parser.add_argument(
        "--private",
        action="store_true",
        help="leave out values and names, so that the trace can be given away; a map beside it restores them",
    )
    parser.add_argument(
        "--gpu",
        default="gfx942",
        metavar="ARCH",
        help="the GPU to predict for, and to pretend while tracing without one (gfx942)",
    )
    parser.add_argument("--force", action="store_true", help="replace what is there")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")


def _add_run(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("run", help="trace, replay, judge, report")
    _add_target(parser)
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
    parser.set_defaults(command=_run)


def _add_limits(parser: _Parser) -> None:
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


def _add_trace(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser(
        "trace",
        help="record only; a file that travels",
        epilog="`trace show`, `trace diff` and `trace merge` look into such files; a script called show is ./show",
    )
    _add_target(parser)
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write the trace (NAME.audit)")
    parser.set_defaults(command=_trace)


def _add_report(commands: argparse._SubParsersAction[_Parser]) -> None:
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


def _add_doctor(commands: argparse._SubParsersAction[_Parser]) -> None:
    parser = commands.add_parser("doctor", help="what is here, and does the audit itself work here")
    parser.add_argument(
        "--selftest", action="store_true", help="plant faults and look for a known GEMM in the profiler"
    )
    parser.add_argument("--device", default="auto", help="auto, hip, cuda or sim (auto)")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file to send back (rocm-audit-doctor.json)"
    )
    parser.add_argument("--force", action="store_true", help="replace that file")
    parser.set_defaults(command=_doctor)


# --- commands ----------------------------------------------------------------------------------------------------


def _target_of(options: argparse.Namespace) -> Target:
    from audit.targets import InputShape, find_target

    if (options.target is None) == (options.module is None):
        raise UsageError(
            "give one program: a script, a config.json, a .pt2 or .audit file, or -m package.module", "bad-arguments"
        )
    target = find_target(options.module or options.target, options.module is not None, options.program_arguments)
    shape = {name: value for name in ("batch", "seq", "dtype") if (value := getattr(options, name)) is not None}
    if shape and target.kind not in ("config", "exported"):
        raise UsageError(
            f"--{next(iter(shape))} is for a config.json or .pt2 file; {target.name} makes its own inputs",
            "bad-arguments",
        )
    options.shape = InputShape(**shape)
    if options.fake and target.kind in ("opset", "recording"):
        raise UsageError(f"{target.name} is recorded already: --fake is for recording", "bad-arguments")
    return target


def _run_options(options: argparse.Namespace, target: Target, output: Path) -> RunOptions:
    """What run and trace have in common."""
    from audit.session import RunOptions

    return RunOptions(
        target=target,
        output=output,
        gpu=options.gpu,
        n_steps=options.steps,
        mode=options.mode,
        fake=options.fake,
        private=options.private,
        shape=options.shape,
        values_bytes=options.values,
        force=options.force,
    )


def _run(options: argparse.Namespace) -> int:
    from audit.progress import Progress
    from audit.session import run

    target = _target_of(options)
    output = options.output or Path("reports", re.sub(r"[^\w.-]+", "_", target.stem))
    asked = dataclasses.replace(
        _run_options(options, target, output),
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
    with Progress(options.quiet) as progress:
        judgement, code = run(asked, progress)
    _print_result(judgement, output, options.format)
    _print_early_end(judgement.run.header.source)
    header = judgement.run.header
    _print_missed(header.source, header.not_audited)
    if not judgement.verdicts:
        calls = f"{header.n_recorded} recorded calls"
        print(
            f"rocm-audit: no case came of {calls} of {header.source.name}; nothing was judged [no-ops]", file=sys.stderr
        )
    return code


def _trace(options: argparse.Namespace) -> int:
    from audit.session import trace_only
    from audit.timed_trace import is_run

    if options.target is not None and is_run(Path(options.target)):
        return _trace_of_run(options, Path(options.target))
    target = _target_of(options)
    is_copy = target.kind == "opset"
    output = options.output or Path(f"{target.stem}{'.private' if is_copy else ''}.audit")
    trace, path = trace_only(_run_options(options, target, output))
    print(f"{path}: {len(trace.cases)} cases from {trace.n_recorded} calls")
    for item in trace.not_audited:
        times = f"{item.n_calls} calls" if item.n_calls else f"{item.n_seen} times"
        print(f"  not audited: {item.what} ({item.reason}, {times})")
    _print_early_end(trace.source)
    return 3 if _print_missed(trace.source, trace.not_audited) or trace.source.error else 0


def _trace_of_run(options: argparse.Namespace, folder: Path) -> int:
    from audit.timed_trace import write_timed_trace

    output = options.output or Path(f"{folder.resolve().name}.audit")
    trace = write_timed_trace(folder, output, options.force)
    assert trace.elsewhere is not None, "a timed trace"
    times = trace.elsewhere
    print(f"{output}: {len(trace.cases)} cases, {len(times.times)} with their times on {times.device.name}")
    return 0


def _report(options: argparse.Namespace) -> int:
    from audit.judged_folder import report

    judgement = report(options.folder, options.format, options.output, options.names)
    _print_result(judgement, options.output or options.folder, options.format)
    return 1 if judgement.has_any(options.fail_on) else 0


def _doctor(options: argparse.Namespace) -> int:
    from audit.doctor import doctor

    return doctor(selftest=options.selftest, device=options.device, output=options.output, force=options.force)


def _print_missed(source: Source, not_audited: Sequence[NotAudited]) -> bool:
    """Says that a trace is not portable; whether it had to."""
    from audit.rules.not_audited import missed_composites

    missed = list(missed_composites(source.name, not_audited))
    for finding in missed:
        print(f"rocm-audit: {finding.message} [device-specific-op]", file=sys.stderr)
    return bool(missed)


def _print_early_end(source: Source) -> None:
    """An audit of half a program is not one of the program: said last, so that it is read."""
    if source.error:
        error = " ".join(source.error.split())
        print(f"rocm-audit: the program ended early: {error} [program-ended]", file=sys.stderr)


def _print_result(judgement: Judgement, folder: Path, formats: Sequence[str]) -> None:
    from audit.report.terminal import render_terminal

    colour = sys.stdout.isatty()
    width = shutil.get_terminal_size((100, 24)).columns
    page = (folder if folder.suffix != ".jsonl" else folder.parent) / "report.html" if "html" in formats else None
    sys.stdout.write(render_terminal(judgement, width, colour, page))


if __name__ == "__main__":
    sys.exit(main())
