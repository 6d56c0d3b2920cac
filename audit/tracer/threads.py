"""Threads that the program starts: recorded as the first one is, each by a dispatch mode of its own.

A dispatch mode is thread-local. Text generation that streams runs the whole model on a thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager


class ThreadWatch:
    """From ``install`` to ``remove``, every thread that is started runs within ``recording()``."""

    def __init__(self, recording: Callable[[], AbstractContextManager[object]]) -> None:
        self._recording = recording
        self._original = threading.Thread.start

    def install(self) -> None:
        original, recording = threading.Thread.start, self._recording
        self._original = original

        def start(thread: threading.Thread) -> None:
            run = thread.run

            def recorded() -> None:
                with recording():
                    run()

            # On the instance: a subclass may have a `run` of its own.
            thread.run = recorded  # type: ignore[method-assign]
            original(thread)

        threading.Thread.start = start  # type: ignore[method-assign, assignment]

    def remove(self) -> None:
        threading.Thread.start = self._original  # type: ignore[method-assign]
