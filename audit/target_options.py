"""What ``run`` and ``trace`` have in common: which program, and how it is recorded."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from audit.errors import UsageError
from audit.option_values import positive, size

if TYPE_CHECKING:
    from audit.run_options import RunOptions
    from audit.targets import Target

DTYPES = ("float32", "bfloat16", "float16")


def add_target(parser: argparse.ArgumentParser) -> None:
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


def target_of(options: argparse.Namespace) -> Target:
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


def recording_options(options: argparse.Namespace, target: Target, output: Path) -> RunOptions:
    """What run and trace have in common."""
    from audit.run_options import RunOptions

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
