"""Starts the tracing child and turns its end into a result or an error."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from audit.codec import encode
from audit.errors import UnfinishedError
from audit.schema import DeviceInfo
from audit.targets import InputShape, Target

#: By which a process of either flavour sees no GPU. Both are set, since torch for ROCm reads both and wants them equal.
_VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

#: Not ``python -m``, which looks for modules in the working folder first: a ``queue.py`` or ``audit.py`` of the user's
#: there must not shadow ours. The folder of this package comes first until it is imported, and is then gone again, so
#: that the program finds its modules where it would without the audit. Interrupted while torch is loaded, it ends
#: without words: nothing of the program has run, and the audit's own process says what there is to say.
_START = """
import signal
import sys
is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
if is_ours:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
sys.path[:] = [sys.argv.pop(1), *(entry for entry in sys.path if entry)]
from audit.tracer.child import leave, main
del sys.path[0]
if is_ours:
    signal.signal(signal.SIGINT, signal.default_int_handler)
leave(main(sys.argv[1:]))
"""


def trace_in_child(
    target: Target,
    output: Path,
    n_steps: int,
    mode: str | None,
    values_bytes: int,
    gpu: DeviceInfo,
    fake: bool,
    shape: InputShape,
    names: Path | None = None,
) -> None:
    """Traces ``target`` into ``output``, with ``names`` as a private trace whose map goes there.

    Raises UnfinishedError; the child has said its own sentence on stderr.
    """
    config = {
        **_program(target, n_steps, mode, gpu, shape),
        "output": str(output.absolute()),  # the program may change its folder
        "values_bytes": values_bytes,
        "fake": fake,
        "names": None if names is None else str(names.absolute()),
    }
    _run(target, config, dict(os.environ))


def tape_in_child(
    target: Target, folder: Path, limit_bytes: int, mode: str | None, gpu: DeviceInfo, shape: InputShape
) -> None:
    """Runs the first step of ``target`` on the CPU and leaves its tape in ``folder``.

    A GPU that is there is hidden from it, so that the program takes the one that it would take elsewhere for granted,
    and its numbers are the CPU's. Raises UnfinishedError; the child has said its own sentence on stderr.
    """
    config = {
        **_program(target, 1, mode, gpu, shape),
        "output": str(folder.absolute()),
        "tape_bytes": limit_bytes,
    }
    _run(target, config, {**os.environ, **dict.fromkeys(_VISIBLE, "-1")})


def _program(target: Target, n_steps: int, mode: str | None, gpu: DeviceInfo, shape: InputShape) -> dict[str, Any]:
    """What both kinds of child are told of the program."""
    return {
        "program": {
            "target": target.name if target.kind == "module" else str(target.path),
            "kind": target.kind,
            "arguments": list(target.arguments),
            "n_steps": n_steps,
            "mode": mode,
            "shape": dataclasses.asdict(shape),
        },
        "auditor": os.getpid(),
        "gpu": encode(gpu),
    }


def _run(target: Target, config: dict[str, Any], environment: dict[str, str]) -> None:
    command = [sys.executable, "-c", _START, str(Path(__file__).resolve().parents[2]), json.dumps(config)]
    code = subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False).returncode
    if code == 0:
        return
    if code < 0:
        raise UnfinishedError(_death(target.name, -code), "program-died")
    if code in (2, 3):
        raise ReportedByChild(code)
    raise UnfinishedError(f"tracing {target.name} ended with exit code {code} and no result", "program-died")


def _death(name: str, number: int) -> str:
    try:
        what = signal.Signals(number).name
    except ValueError:
        what = f"signal {number}"
    advice = (
        "the system may have run out of memory: trace with a smaller batch or fewer layers"
        if number == signal.SIGKILL
        else "run it alone to see whether it does so without the audit"
    )
    return f"{name} was killed by {what} while it was traced, and took its record along; {advice}"


class ReportedByChild(UnfinishedError):
    """The child failed and has already said why, in its own sentence on stderr."""

    def __init__(self, code: int) -> None:
        super().__init__("the tracing process failed", "program-died")
        self.code = code
