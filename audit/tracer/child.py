"""The process that runs the user's program under the recorder, started by ``audit.tracer.launch``.

A process of its own, so that a program that crashes, eats the memory or patches torch leaves the audit standing, and
its model is gone when the replay starts.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import signal
import sys
import threading
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NoReturn

import torch

from audit.codec import decode
from audit.device.environment import collect_environment
from audit.errors import AuditError
from audit.schema import DeviceInfo
from audit.targets import InputShape
from audit.tracer.optimizers import chosen_as_on_gpu
from audit.tracer.program import Program, check_recorded, run_program
from audit.tracer.recorder import Recorder
from audit.tracer.redirect import GPU_NAMED, redirection
from audit.tracer.shapes_only import ShapesOnly
from audit.tracer.tape_writer import TapeWriter
from audit.tracer.taping import TapeRecorder
from audit.tracer.values import ValueRecorder
from audit.tracer.writing import write_trace

#: How long the program's threads may go on when it has ended and its trace is written.
THREADS_LIMIT_S = 10.0


def main(arguments: list[str]) -> int:
    """Traces as the JSON in ``arguments[0]`` says; on failure one sentence on stderr. Returns the exit code."""
    config = json.loads(arguments[0])
    _die_with(config["auditor"])
    os.dup2(2, 1)  # the audit's own result goes to stdout; what the program prints is progress
    try:
        if config.get("tape_bytes") is not None:
            tape_program(_program(config["program"]), Path(config["output"]), config["tape_bytes"], _gpu(config["gpu"]))
            return 0
        trace_program(
            _program(config["program"]),
            Path(config["output"]),
            config["values_bytes"],
            _gpu(config["gpu"]),
            config["fake"],
            None if config["names"] is None else Path(config["names"]),
        )
    except AuditError as error:
        print(f"rocm-audit: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 3  # the auditor got it too, and says so
    return 0


def _die_with(auditor: int) -> None:
    """The program does not run on when nobody waits for its trace any more (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != auditor:  # it died before the call above
        os._exit(3)


def leave(code: int) -> NoReturn:
    """Ends the process with ``code`` whatever the program left behind: its threads, exit handlers, native libraries.

    A loader's thread whose queue nobody empties any more would keep the process for ever.
    """
    deadline = time.monotonic() + THREADS_LIMIT_S
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(max(0.0, deadline - time.monotonic()))
    end = os._exit
    os._exit = lambda status: end(code)  # an exit handler's own code is not the audit's
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # whatever the program put there, or closed
            stream.flush()
    end(code)


def trace_program(
    program: Program,
    output: Path,
    values_bytes: int,
    gpu: DeviceInfo | None,
    fake: bool = False,
    names: Path | None = None,
) -> None:
    """Runs ``program`` and writes its trace to ``output``; ``gpu`` is what ``torch.cuda`` answers as without one.

    ``fake``: on tensors without memory. ``names``: as a private trace, whose map goes there.
    """
    shapes = ShapesOnly() if fake else None
    recorder = Recorder(None if fake else ValueRecorder(total_bytes=values_bytes if names is None else 0), shapes)
    redirected = gpu is not None and not torch.cuda.is_available()
    optimizers = chosen_as_on_gpu(GPU_NAMED.is_set, recorder.note) if redirected else nullcontext()
    shaped = nullcontext() if shapes is None else shapes.tracing()
    with redirection(gpu), optimizers, shaped:
        source = run_program(program, recorder)
    check_recorded(recorder, source)
    if redirected and gpu is not None:
        recorder.note(f"traced on the CPU: no GPU here, torch.cuda answered as {gpu.name} ({gpu.arch}) would")
    for note in () if shapes is None else shapes.notes():
        recorder.note(note)
    write_trace(recorder, source, collect_environment(), output, names)


def tape_program(program: Program, folder: Path, limit_bytes: int, gpu: DeviceInfo | None) -> None:
    """Runs ``program`` on the CPU and writes the tape of its calls to ``folder``."""
    tape = TapeWriter(folder, limit_bytes)
    recorder = TapeRecorder(tape)
    with redirection(gpu), chosen_as_on_gpu(GPU_NAMED.is_set, recorder.note):
        source = run_program(program, recorder)
    check_recorded(recorder, source)
    full = f"the values of the step take more than {limit_bytes / 2**30:.1f} GiB of disk" if tape.full else ""
    tape.end(full or (f"the program ended early: {source.error}" if source.error else ""))


def _program(config: dict[str, Any]) -> Program:
    return Program(**{**config, "arguments": tuple(config["arguments"]), "shape": InputShape(**config["shape"])})


def _gpu(config: dict[str, Any] | None) -> DeviceInfo | None:
    return decode(DeviceInfo, config) if config is not None else None
