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


def remarks(timing: Timing) -> list[str]:
    """What a reader of the times must know: that caches were warm, or that the device may have waited for the host."""
    if timing.host_us is None or timing.lead_us is None:
        return []
    if timing.lead_us == 0.0:
        return ["timed with warm caches, and with the host beside the device: no memory was left to flush them"]
    if timing.host_us > timing.lead_us and not timing.waits:
        ahead = f"{timing.host_us:.0f} µs to issue, {timing.lead_us:.0f} µs of it ahead of the device"
        return [f"the time may have gaps in which the device waited for the host: the call takes {ahead}"]
    return []
