"""The end that others give an audit: signals of schedulers, timeouts and closed terminals."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic

#: ``timeout`` signals its child and then the group that the child is in: the second time it is the same signal.
_SAME_SIGNAL_S = 1.0


@contextmanager
def termination_as_interrupt() -> Iterator[None]:
    """SIGTERM (a scheduler, ``timeout``, a cancelled job) and SIGHUP end an audit as Ctrl-C does: children and scratch
    files go, and what was measured is reported."""

    last = -math.inf

    def interrupt(number: int, frame: object) -> None:
        nonlocal last
        before, last = last, monotonic()
        if last - before > _SAME_SIGNAL_S:
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
