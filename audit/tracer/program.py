"""Runs a user's program under the recorder: a script, a module, or a file that defines a model.

The program runs as ``__main__`` with its own arguments and sees its usual surroundings. It is ended cleanly after
``n_steps`` optimizer steps or, where no optimizer is at work, forward calls of the outermost module.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
import traceback
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch
from torch.nn.utils.parametrize import ParametrizationList

from audit.errors import AuditError, UnfinishedError, UsageError
from audit.schema import Source
from audit.targets import InputShape, TargetKind
from audit.tracer import configured_model, exported_program
from audit.tracer.recorder import Recorder

#: An optimizer exists but never steps (an evaluation script, accumulation over very many batches): after this many
#: forward calls a step, the program is ended all the same, since real scripts run for days.
FORWARDS_PER_STEP = 64
#: So much of an exception's message is kept: some hold a whole tensor, or a compiler's output.
MESSAGE_CHARACTERS = 500


class StepsDone(BaseException):
    """Ends the program from inside. Not an Exception: a training loop's own error handling must not swallow it."""


@dataclass(frozen=True)
class Program:
    """What to run. ``target`` is a path, or the name of a module; ``shape`` is for kinds that bring no inputs."""

    target: str
    kind: TargetKind = "script"
    arguments: tuple[str, ...] = ()
    n_steps: int = 2
    mode: str | None = None
    shape: InputShape = field(default_factory=InputShape)


class StepCounter:
    """Counts optimizer steps and forward calls of the outermost module, and raises StepsDone when there are enough."""

    def __init__(self, recorder: Recorder, n_steps: int) -> None:
        self._recorder = recorder
        self._n_steps = n_steps
        self._n_optimizers = 0
        self._calls: Counter[int] = Counter()
        recorder.modules.on_root_call = self._forward_starts
        recorder.on_optimizer_step = self._optimizer_stepped

    @property
    def n_forwards(self) -> int:
        """Calls of the outermost module that was called most; a loss module beside it does not add to them."""
        return max(self._calls.values(), default=0)

    def _forward_starts(self, module: torch.nn.Module) -> None:
        """Ends before the forward that would be one too many, so that the last backward is complete."""
        if _is_set_up(module):
            return
        limit = self._n_steps * (FORWARDS_PER_STEP if self._n_optimizers else 1)
        if self._calls[id(module)] >= limit or self._calls.total() >= self._n_steps * FORWARDS_PER_STEP:
            self._end()
        self._calls[id(module)] += 1

    def _optimizer_stepped(self) -> None:
        if self._recorder.n_optimizer_steps >= self._n_steps:
            self._end()

    def _end(self) -> NoReturn:
        """Ends the program; on another thread that one and the first, which may wait for its results for ever."""
        first = threading.main_thread()
        if threading.current_thread() is first or not hasattr(signal, "pthread_kill") or first.ident is None:
            raise StepsDone
        signal.pthread_kill(first.ident, signal.SIGURG)
        raise SystemExit  # a thread ends with it and prints nothing

    @contextmanager
    def ending_from_threads(self) -> Iterator[None]:
        """A signal that is ignored by default, and so does no harm when it comes too late, ends the first thread."""
        if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGURG"):
            yield
            return

        def end(number: int, frame: FrameType | None) -> NoReturn:
            raise StepsDone

        before = signal.signal(signal.SIGURG, end)
        try:
            yield
        finally:
            signal.signal(signal.SIGURG, before)

    @contextmanager
    def watching_optimizers(self) -> Iterator[None]:
        """Notices that the program makes an optimizer, by the constructor of the base class."""
        original = torch.optim.Optimizer.__init__
        counter = self

        def counting(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
            counter._n_optimizers += 1
            original(self, *args, **kwargs)

        torch.optim.Optimizer.__init__ = counting  # type: ignore[method-assign]
        try:
            yield
        finally:
            torch.optim.Optimizer.__init__ = original  # type: ignore[method-assign]


def _is_set_up(module: torch.nn.Module) -> bool:
    """Whether the call only computes a weight: a parametrization (weight norm), or a module that is being made.

    Wav2Vec2 calls its weight norm twice while it is built, and would be ended before it ran.
    """
    if isinstance(module, ParametrizationList):
        return True
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "__init__" and isinstance(frame.f_locals.get("self"), torch.nn.Module):
            return True
        frame = frame.f_back
    return False


class ProgramExit(BaseException):
    """``os._exit`` called by the program: nothing after it runs, but what was recorded is kept."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


@contextmanager
def _hard_exit_caught() -> Iterator[None]:
    original, process = os._exit, os.getpid()

    def leave(status: int) -> NoReturn:
        if os.getpid() != process:
            original(status)  # a forked child (dataloader worker) ends as it meant to
        raise ProgramExit(status)

    os._exit = leave
    try:
        yield
    finally:
        os._exit = original


def run_program(program: Program, recorder: Recorder) -> Source:
    """Runs the program with ``recorder`` on, and says how it went.

    An exception of the program ends the recording, not the audit: it is kept in ``Source.error``. Raises UsageError for
    a missing file, a module that cannot be found or a file that does not compile.
    """
    execute = _RUNNERS[program.kind](program)
    counter = StepCounter(recorder, program.n_steps)
    error: str | None = None
    mode: str | None = None
    process = os.getpid()
    with _surroundings(program), counter.watching_optimizers(), _hard_exit_caught():
        recorder.start()
        try:
            with counter.ending_from_threads():
                with recorder.paused() if program.kind in _MADE else nullcontext():
                    namespace = execute()
                if program.kind in _MADE or (counter.n_forwards == 0 and _defines_model(namespace)):
                    recorder.reset()
                    mode = _run_defined_model(namespace, program, recorder)
        except StepsDone:
            pass
        except SystemExit as leaving:
            error = _exit_message(leaving.code)
        except ProgramExit as leaving:
            error = _exit_message(leaving.code)
        except AuditError:
            raise
        except BaseException as problem:  # noqa: BLE001 - the program's own failure, whatever it is: what was recorded is audited
            # KeyboardInterrupt as well: where a person pressed Ctrl-C, the auditor has got it too and ends us.
            error = _describe(problem)
        finally:
            if os.getpid() != process:
                os._exit(1 if error else 0)  # a process that the program forked: the trace is its parent's to write
            recorder.stop()
    kind = "file" if program.kind == "script" and mode else program.kind
    n_steps = recorder.n_optimizer_steps or counter.n_forwards
    name = program.target if program.kind == "module" else Path(program.target).name
    return Source(kind, name, mode, n_steps, error)


def _exit_message(code: object) -> str | None:
    return None if code in (None, 0) else f"the program exited with {code!r}"


def _describe(problem: BaseException) -> str:
    """The exception and the innermost line of the program, for a person."""
    frames = [
        f
        for f in traceback.extract_tb(problem.__traceback__)
        if f"{os.sep}audit{os.sep}tracer{os.sep}" not in f.filename
    ]
    where = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    message = "".join(c if c.isprintable() else " " for c in str(traceback.TracebackException.from_exception(problem)))
    if len(message) > MESSAGE_CHARACTERS:
        message = f"{message[:MESSAGE_CHARACTERS]}..."
    return f"{type(problem).__name__}: {message}{where}"


# --- scripts and modules -----------------------------------------------------------------------------------------


def _script_runner(program: Program) -> Callable[[], dict[str, Any]]:
    path = Path(program.target)
    try:
        source = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read the program {path}: {error.strerror}", "unreadable-program") from error
    try:
        code = compile(source, str(path.resolve()), "exec")
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path} is not a Python program: {error}", "not-python") from error

    def execute() -> dict[str, Any]:
        main = types.ModuleType("__main__")
        main.__file__ = str(path.resolve())
        main.__builtins__ = __builtins__  # type: ignore[attr-defined]  # what the interpreter gives __main__
        sys.modules["__main__"] = main
        exec(code, main.__dict__)  # the user's own program, which they asked us to run
        return main.__dict__

    return execute


def _module_runner(program: Program) -> Callable[[], dict[str, Any]]:
    def execute() -> dict[str, Any]:
        return runpy.run_module(program.target, run_name="__main__", alter_sys=True)

    sys.path.insert(0, os.getcwd())
    try:
        runpy._get_module_details(program.target)  # type: ignore[attr-defined]  # what `python -m` asks
    except ImportError as error:
        raise UsageError(f"no module to run: {error}", "unreadable-program") from error
    finally:
        sys.path.remove(os.getcwd())
    return execute


def _config_runner(program: Program) -> Callable[[], dict[str, Any]]:
    return lambda: configured_model.define(Path(program.target), program.shape, program.mode or "infer")


def _exported_runner(program: Program) -> Callable[[], dict[str, Any]]:
    return lambda: exported_program.define(Path(program.target), program.shape)


_RUNNERS: Mapping[str, Callable[[Program], Callable[[], dict[str, Any]]]] = {
    "script": _script_runner,
    "module": _module_runner,
    "config": _config_runner,
    "exported": _exported_runner,
}
#: Kinds whose model and inputs we make: nothing else runs.
_MADE = ("config", "exported")


@contextmanager
def _surroundings(program: Program) -> Iterator[None]:
    """sys.argv, sys.path[0] and ``__main__`` as ``python script.py args`` would have them."""
    argv, path, main = sys.argv, list(sys.path), sys.modules["__main__"]
    sys.argv = [program.target, *program.arguments]
    sys.path.insert(0, os.getcwd() if program.kind == "module" else str(Path(program.target).resolve().parent))
    try:
        yield
    finally:
        sys.argv, sys.path[:], sys.modules["__main__"] = argv, path, main


# --- files that define a model -----------------------------------------------------------------------------------


def _defines_model(namespace: Mapping[str, Any]) -> bool:
    return ("model" in namespace or callable(namespace.get("get_model"))) and (
        "inputs" in namespace or callable(namespace.get("get_inputs"))
    )


def _run_defined_model(namespace: Mapping[str, Any], program: Program, recorder: Recorder) -> str:
    """One step of the model that a file defines: forward, in train mode backward and optimizer. Returns the mode."""
    with recorder.paused():
        model = namespace["model"] if "model" in namespace else namespace["get_model"]()
        inputs = namespace["inputs"] if "inputs" in namespace else namespace["get_inputs"]()
    if not callable(model):
        raise UsageError(
            f"{program.target}: `model` is a {type(model).__name__}, expected a callable", "bad-model-file"
        )
    loss, optimizer = namespace.get("loss"), namespace.get("optimizer")
    mode = program.mode or ("train" if loss is not None or optimizer is not None else "infer")
    if isinstance(model, torch.nn.Module):
        model.train(mode == "train")
    if mode == "infer":
        with torch.no_grad():
            _call(model, inputs)
        return mode
    _scalar_loss(loss, _call(model, inputs)).backward()
    if optimizer is not None:
        optimizer.step()
    return mode


def _call(model: Callable[..., Any], inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, (tuple, list)) else model(inputs)


def _scalar_loss(loss: Callable[[Any], Any] | None, output: Any) -> torch.Tensor:
    """The given loss, the output's own ``loss``, or the sum of the float outputs: something to go backward from."""
    if loss is not None:
        return loss(output)  # type: ignore[no-any-return]
    if isinstance(getattr(output, "loss", None), torch.Tensor):
        return output.loss  # type: ignore[no-any-return]
    total = [t.float().sum() for t in _float_tensors(output) if t.requires_grad]
    if not total:
        raise UsageError("the model's output has no gradient to train on; define `loss` or use --mode infer", "no-loss")
    return torch.stack(total).sum()


def _float_tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for item in output.values():
            yield from _float_tensors(item)
    elif isinstance(output, Sequence) and not isinstance(output, str):
        for item in output:
            yield from _float_tensors(item)


def check_recorded(recorder: Recorder, source: Source) -> None:
    """Raises UnfinishedError when there is nothing to audit."""
    if recorder.n_recorded == 0:
        ending = f" ({source.error})" if source.error else ""
        raise UnfinishedError(f"{source.name} ran no PyTorch op{ending}; there is nothing to audit", "no-ops")
