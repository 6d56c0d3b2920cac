"""One line of the benchmark's table, and the median of repeated timings."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter, thread_time


@dataclass(frozen=True)
class Line:
    """What was measured, its median as text, the aim if there is one, and how it was measured."""

    what: str
    value: str
    how: str
    aim: str = ""


def median_s(call: Callable[[], object], n: int, warm_up: int = 1, clock: Callable[[], float] = perf_counter) -> float:
    """Median seconds of ``n`` calls, after ``warm_up`` that do not count; wall-clock, unless another clock is given."""
    for _ in range(warm_up):
        call()
    times = []
    for _ in range(n):
        start = clock()
        call()
        times.append(clock() - start)
    return statistics.median(times)


#: CPU time of the calling thread: what else runs on the machine does not count.
cpu_clock = thread_time
