"""Repeated timing within a budget: the median of single runs and the distance between their quartiles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from audit.schema import Timing

MIN_RUNS = 5
MAX_RUNS = 100
#: How far MIN_RUNS may overdraw the budget: a spread from one run is none.
OVERDRAW = 10


def repeat(measure_us: Callable[[], float], budget_s: float) -> Timing:
    """Calls ``measure_us`` (one run, its duration in microseconds) until ``budget_s`` wall seconds are spent.

    The first call is the warm-up: it is not in the median nor in the budget, and reported as ``first_us``. At least
    ``MIN_RUNS`` runs follow, unless they take ``OVERDRAW`` times the budget; one at least, ``MAX_RUNS`` at most.
    """
    first_us = measure_us()
    started = time.perf_counter()
    runs: list[float] = []
    while True:
        runs.append(measure_us())
        spent = time.perf_counter() - started
        slow = spent > budget_s * OVERDRAW
        if len(runs) >= MAX_RUNS or slow or (len(runs) >= MIN_RUNS and spent > budget_s):
            break
    return Timing(statistics.median(runs), interquartile_range(runs), len(runs), first_us)


def interquartile_range(runs: list[float]) -> float:
    """Distance of the quartiles, 0 for a single run."""
    if len(runs) < 2:
        return 0.0
    low, _, high = statistics.quantiles(runs, n=4, method="inclusive")
    return high - low


def wall_clock_us(call: Callable[[], object]) -> float:
    """Runs ``call`` once; microseconds by the monotonic clock."""
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) / 1e3
