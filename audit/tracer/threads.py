"""Ops on threads that the program starts: counted, so that nothing runs unseen, and not recorded.

A dispatch mode is thread-local, so the recorder sees one thread. Each other thread gets a mode that only counts.
"""

from __future__ import annotations

import threading
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode


class CountingMode(TorchDispatchMode):
    """Counts the ops of one thread and changes nothing."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(self) -> None:
        super().__init__()
        self.n_ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n_ops += 1
        return func(*args, **(kwargs or {}))


class ThreadWatch:
    """From ``install`` to ``remove``, every thread that is started runs under a ``CountingMode`` of its own."""

    def __init__(self) -> None:
        self._modes: list[CountingMode] = []
        self._original = threading.Thread.start

    @property
    def n_ops(self) -> int:
        """Ops seen so far on all threads but the recorder's."""
        return sum(mode.n_ops for mode in self._modes)

    def install(self) -> None:
        original, modes = self._original, self._modes

        def start(thread: threading.Thread) -> None:
            run = thread.run

            def counted() -> None:
                mode = CountingMode()
                modes.append(mode)
                with mode:
                    run()

            # On the instance: a subclass may have a `run` of its own.
            thread.run = counted  # type: ignore[method-assign]
            original(thread)

        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        threading.Thread.start = self._original  # type: ignore[method-assign]
