"""How long the CPU takes for a case: an impression beside the device's time, not a benchmark."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch

from audit.replay.inputs import Bound
from audit.replay.on_cpu import cpu_op
from audit.schema import Case, Timing

#: The CPU is timed again as long as this lasts; longer ops count with their one run.
RETIME_LIMIT_S = 0.005


def cpu_time(case: Case, bound: Bound, seconds: float, mutated: Sequence[int]) -> Timing:
    """Of a call that took ``seconds`` the first time. Short ops that change no argument are timed a few more times, so
    that the first call's set-up does not count."""
    first_us = seconds * 1e6
    once = Timing(median_us=first_us, iqr_us=0.0, n=1, first_us=first_us)
    if mutated or case.grads is not None or seconds > RETIME_LIMIT_S:
        return once
    op = cpu_op(case)
    times: list[float] = []
    deadline = time.perf_counter() + RETIME_LIMIT_S
    with torch.no_grad():
        while len(times) < 20 and time.perf_counter() < deadline:
            start = time.perf_counter()
            op(*bound.args, **bound.kwargs)
            times.append((time.perf_counter() - start) * 1e6)
    if len(times) < 2:
        return once
    low, _, high = statistics.quantiles(times, n=4)
    return Timing(median_us=statistics.median(times), iqr_us=high - low, n=len(times), first_us=first_us)
