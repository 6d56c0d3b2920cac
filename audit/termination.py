"""The end that others give an audit: signals of schedulers, timeouts and closed terminals."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM (a scheduler, ``timeout``, a cancelled job) and SIGHUP end an audit as Ctrl-C does: children and scratch
    files go, and what was measured is reported."""

    def interrupt(number: int, frame: object) -> NoReturn:
        raise KeyboardInterrupt

    try:
        old = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    except ValueError:  # not the main thread: signals are somebody else's
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
