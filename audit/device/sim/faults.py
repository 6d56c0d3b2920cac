"""Fault files of the simulated device: which ops go wrong, and what a fault function is given."""

from __future__ import annotations

import fnmatch
import os
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from audit.errors import UsageError
from audit.schema import Copy, Kernel


@dataclass(frozen=True)
class Call:
    """One op on its way through the simulated device, handed to the fault that matches it.

    ``args`` and ``kwargs`` hold plain CPU tensors with the strides, offsets and values that the device would see; what
    is written into them is written on the device. ``run(*args, **kwargs)`` computes the healthy result.
    """

    op: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    phase: str
    run: Callable[..., Any]
    note_kernel: Callable[[Kernel], None]
    note_copy: Callable[[Copy], None]

    def kernel(self, name: str, us: float) -> None:
        """Shows the observer a kernel of that name and device time in microseconds."""
        self.note_kernel(Kernel(name, float(us)))

    def copy(self, direction: Literal["DtoH", "HtoD"], nbytes: int) -> None:
        """Shows the observer a copy between device and host."""
        self.note_copy(Copy(direction, int(nbytes)))

    def stderr(self, text: str) -> None:
        """Writes to file descriptor 2, as MIOpen and hipBLASLt do, past Python's sys.stderr."""
        os.write(2, (text if text.endswith("\n") else text + "\n").encode())

    def warn(self, text: str) -> None:
        """Raises a Python UserWarning, as TORCH_WARN does."""
        warnings.warn(text, UserWarning, stacklevel=2)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


Fault: TypeAlias = Callable[[Call], Any]


#: What a module may raise while it is executed; anything else (KeyboardInterrupt, SystemExit) is not about the file.
_LOAD_ERRORS = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError, OSError, RuntimeError,
    TypeError, ValueError,
)  # fmt: skip


def load_faults(path: Path) -> dict[str, Fault]:
    """Runs the user's fault file and returns its ``FAULTS``: globs on qualified overloads to functions.

    Raises UsageError (``bad-fault-file``) when it cannot be read or run, or does not define what it should.
    """
    try:
        source = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot read the fault file {path}: {error.strerror}", "bad-fault-file") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the fault file {path} is not UTF-8 text: {error}", "bad-fault-file") from error
    scope: dict[str, Any] = {"__name__": "faults", "__file__": str(path)}
    try:
        exec(compile(source, str(path), "exec"), scope)
    except SyntaxError as error:
        message = f"the fault file {path} has a syntax error in line {error.lineno}: {error.msg}"
        raise UsageError(message, "bad-fault-file") from error
    except _LOAD_ERRORS as error:
        message = f"the fault file {path} raised {type(error).__name__} while it was loaded: {error}"
        raise UsageError(message, "bad-fault-file") from error
    return _checked(scope.get("FAULTS"), path)


def _checked(faults: object, path: Path) -> dict[str, Fault]:
    if not isinstance(faults, dict):
        message = f'the fault file {path} must define FAULTS, a dict such as {{"aten::mm.default": function}}'
        raise UsageError(message, "bad-fault-file")
    for pattern, fault in faults.items():
        if not isinstance(pattern, str) or "::" not in pattern:
            message = f"the fault file {path} has the key {pattern!r}; expected a glob such as 'aten::mm.default'"
            raise UsageError(message, "bad-fault-file")
        if not callable(fault):
            message = f"the fault file {path} maps {pattern!r} to {fault!r}; expected a function that takes a call"
            raise UsageError(message, "bad-fault-file")
    return dict(faults)


def match(faults: Mapping[str, Fault], op: str) -> Fault | None:
    """The fault for ``op``: an exact name first, then the first glob in the file's order."""
    if op in faults:
        return faults[op]
    return next((fault for pattern, fault in faults.items() if fnmatch.fnmatchcase(op, pattern)), None)
