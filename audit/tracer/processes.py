"""Processes that the program starts: counted and named, since what they run is not in this trace."""

from __future__ import annotations

import multiprocessing.process
import os
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_REASON = "a process of its own: what it runs is not in this trace"
_LAUNCHERS = ("accelerate", "deepspeed", "torchrun")
_watches: weakref.WeakSet[ProcessWatch] = weakref.WeakSet()


class ProcessWatch:
    """From ``install`` to ``remove``, ``name`` is told of each process; ``forked`` is called in a forked child."""

    def __init__(self, name: Callable[[str, str], None], forked: Callable[[], None]) -> None:
        self._name = name
        self.forked = forked
        self.starting = False
        self._start = multiprocessing.process.BaseProcess.start
        self._open = subprocess.Popen.__init__

    def install(self) -> None:
        _follow_forks()
        _watches.add(self)
        start, popen, watch = multiprocessing.process.BaseProcess.start, subprocess.Popen.__init__, self
        self._start, self._open = start, popen

        def counted_start(process: multiprocessing.process.BaseProcess) -> None:
            watch._name(_described(process), _REASON)
            watch.starting = True  # its fork is not another one
            try:
                start(process)
            finally:
                watch.starting = False

        def counted_open(self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
            if _runs_python(args):
                watch._name("Python process", _REASON)
            popen(self, args, *rest, **kwargs)

        multiprocessing.process.BaseProcess.start = counted_start  # type: ignore[method-assign, assignment]
        subprocess.Popen.__init__ = counted_open  # type: ignore[method-assign]

    def remove(self) -> None:
        multiprocessing.process.BaseProcess.start = self._start  # type: ignore[method-assign]
        subprocess.Popen.__init__ = self._open  # type: ignore[method-assign]
        _watches.discard(self)

    def after_fork(self) -> None:
        if not self.starting:
            self._name("forked process", _REASON)


@cache
def _follow_forks() -> None:
    """Registers for every fork of this process. It cannot be undone, so the watches are looked up each time."""
    if not hasattr(os, "register_at_fork"):
        return  # Windows has no fork

    def in_parent() -> None:
        for watch in _watches:
            watch.after_fork()

    def in_child() -> None:
        for watch in _watches:
            watch.forked()

    os.register_at_fork(after_in_parent=in_parent, after_in_child=in_child)


def _described(process: multiprocessing.process.BaseProcess) -> str:
    target = getattr(process, "_target", None)
    if getattr(target, "__module__", "").startswith("torch.utils.data."):
        return "dataloader worker"
    return "process (multiprocessing)"


def _runs_python(args: object) -> bool:
    """Whether a command, as ``subprocess`` takes it, starts Python or a launcher of Python programs."""
    first = args[0] if isinstance(args, Sequence) and not isinstance(args, (str, bytes)) and args else args
    words = os.fsdecode(first).split() if isinstance(first, (str, bytes, os.PathLike)) else []
    name = Path(words[0]).name if words else ""
    return name.startswith("python") or name in _LAUNCHERS or (bool(words) and words[0] == sys.executable)
