"""Device time of single runs on a GPU: between two events, with cold caches, behind work that keeps the device busy."""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable

import torch

from audit.device import timing
from audit.schema import Timing

#: Twice the largest last-level cache that we know of: the 256 MiB Infinity Cache of an MI300X, which the properties
#: do not count as L2 (gpus.csv). An H200 has 50 MiB.
FLUSH_BYTES = 512 << 20
#: How much longer than the host took to issue the call the device is kept busy.
MARGIN = 1.25
#: The flush (0.15 ms on an H200) is repeated so often at most; hardly a call takes the host longer than that.
MAX_FLUSHES = 32


class CacheFlush:
    """A buffer larger than any cache, written so that no operand is cached when a timed run starts."""

    def __init__(self, device: torch.device, n_bytes: int = FLUSH_BYTES) -> None:
        self._device = device
        self._n_bytes = n_bytes
        self._buffer: torch.Tensor | None = None

    def allocate(self) -> bool:
        """Whether there is a buffer. Where memory was short, the next call tries again."""
        if self._buffer is None:
            try:
                self._buffer = torch.empty(self._n_bytes, dtype=torch.uint8, device=self._device)
            except torch.OutOfMemoryError:
                return False
        return True

    def free(self) -> None:
        self._buffer = None

    def queue(self, times: int = 1) -> None:
        """Queues so many flushes; none where there is no memory for the buffer."""
        if self._buffer is not None:
            for _ in range(times):
                self._buffer.zero_()


class EventTimer:
    """Times ``call`` on the current GPU; one object a call."""

    def __init__(self, flush: CacheFlush, call: Callable[[], object]) -> None:
        self._flush, self._call = flush, call
        self._cold = flush.allocate()
        self._ahead, self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        self._n_flushes = 1
        self._waits = False
        self._host_us: list[float] = []
        self._lead_us: list[float] = []
        self._late: list[bool] = []

    def repeat(self, budget_s: float) -> Timing:
        """Like ``timing.repeat``, with the times of the host."""
        measured = timing.repeat(self._measure_us, budget_s)
        runs = list(zip(self._host_us, self._lead_us, strict=True))[1:]
        host_us = statistics.median(max(host - lead, 0.0) if self._waits else host for host, lead in runs)
        lead_us = statistics.median(lead for _, lead in runs) if self._cold else 0.0
        return dataclasses.replace(measured, host_us=host_us, lead_us=lead_us, waits=self._waits)

    def _measure_us(self) -> float:
        self._settle(len(self._host_us))
        self._ahead.record()
        self._flush.queue(self._n_flushes)
        self._start.record()
        before = time.perf_counter_ns()
        self._call()
        self._host_us.append((time.perf_counter_ns() - before) / 1e3)
        self._late.append(self._start.query())
        self._end.record()
        self._end.synchronize()
        self._lead_us.append(float(self._ahead.elapsed_time(self._start)) * 1e3)
        return float(self._start.elapsed_time(self._end)) * 1e3

    def _settle(self, n_runs: int) -> None:
        """The first run searched and compiled, the second tells what lead is needed, two more whether it was enough.

        Where it never is, the call waits for the lead to end. Where a later run finds the host slower than that, the
        next has a longer lead.
        """
        if n_runs == 2:
            self._n_flushes = flushes_needed(self._host_us[1], self._lead_us[1])
        elif n_runs == 4 and all(self._late[2:]) and 1 < self._n_flushes < MAX_FLUSHES:
            self._waits, self._n_flushes = True, 1
        elif n_runs >= 4 and self._late[-1] and not self._waits:
            one_flush_us = self._lead_us[-1] / self._n_flushes
            self._n_flushes = max(self._n_flushes, flushes_needed(self._host_us[-1], one_flush_us))


def flushes_needed(host_us: float, flush_us: float) -> int:
    """How often a flush of ``flush_us`` is queued ahead of a call that takes the host ``host_us`` to issue."""
    if flush_us <= 0:
        return 1
    return min(max(math.ceil(MARGIN * host_us / flush_us), 1), MAX_FLUSHES)
