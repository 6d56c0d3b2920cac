"""The time of single runs on a GPU, with a simulated clock: host, device and the flush between them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from audit.device import event_timer
from audit.device.event_timer import EventTimer, flushes_needed
from audit.device.timing import remarks
from audit.schema import Timing

FLUSH_US = 150.0


class Machine:
    """A host and a device with one queue, in microseconds: an event happens when all before it in the queue is done."""

    def __init__(self, cold: bool = True) -> None:
        self.host_us = self.device_us = 0.0
        self.cold = cold

    def queue(self, us: float) -> None:
        self.device_us = max(self.device_us, self.host_us) + us

    def wait(self) -> None:
        self.host_us = max(self.host_us, self.device_us)

    def allocate(self) -> bool:
        return self.cold

    def event(self, enable_timing: bool) -> Any:
        return Event(self)


class Event:
    def __init__(self, machine: Machine) -> None:
        self._machine, self.at_us = machine, 0.0

    def record(self) -> None:
        self._machine.queue(0.0)
        self.at_us = self._machine.device_us

    def query(self) -> bool:
        return self.at_us <= self._machine.host_us

    def synchronize(self) -> None:
        self._machine.wait()

    def elapsed_time(self, later: Event) -> float:
        return (later.at_us - self.at_us) / 1e3


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Timing]:
    """Times a call that issues ``n`` kernels of ``kernel_us``, each after ``issue_us`` on the host.

    From the fifth run on the host takes ``slowed`` times as long.
    """

    def time(
        n: int, kernel_us: float, issue_us: float, waits: bool = False, cold: bool = True, slowed: float = 1.0
    ) -> Timing:
        machine = Machine(cold)
        flush: Any = SimpleNamespace(
            allocate=machine.allocate, queue=lambda times: machine.queue(times * FLUSH_US if cold else 0.0)
        )

        runs = count(1)

        def call() -> None:
            each_us = issue_us * (slowed if next(runs) > 4 else 1.0)
            for _ in range(n):
                machine.host_us += each_us
                machine.queue(kernel_us)
                if waits:
                    machine.wait()

        monkeypatch.setattr(torch.cuda, "Event", machine.event)
        clock = SimpleNamespace(perf_counter_ns=lambda: int(machine.host_us * 1e3))
        monkeypatch.setattr(event_timer, "time", clock)
        return EventTimer(flush, call).repeat(0.01)

    return time


def test_the_time_of_one_kernel_is_its_own_and_not_that_of_the_host(timed: Callable[..., Timing]) -> None:
    found = timed(1, kernel_us=5.0, issue_us=20.0)
    assert (found.median_us, found.host_us, found.lead_us, found.waits) == (5.0, 20.0, 150.0, False)
    assert remarks(found) == []


def test_many_short_kernels_have_no_gaps_since_the_flush_is_repeated_while_the_host_issues_them(
    timed: Callable[..., Timing],
) -> None:
    found = timed(100, kernel_us=2.0, issue_us=8.0)
    assert (found.median_us, found.host_us, found.lead_us, found.waits) == (200.0, 800.0, 1050.0, False)


def test_a_host_that_is_slower_later_on_has_a_longer_lead_then(timed: Callable[..., Timing]) -> None:
    found = timed(100, kernel_us=2.0, issue_us=8.0, slowed=1.5)
    assert (found.median_us, found.host_us, found.lead_us, found.waits) == (200.0, 1200.0, 1500.0, False)


def test_a_call_that_waits_for_the_device_is_told_apart_from_a_slow_host(timed: Callable[..., Timing]) -> None:
    found = timed(1, kernel_us=5.0, issue_us=20.0, waits=True)
    assert (found.median_us, found.host_us, found.lead_us, found.waits) == (5.0, 5.0, 150.0, True)


def test_a_call_that_takes_the_host_longer_than_any_lead_is_said_to_have_gaps(timed: Callable[..., Timing]) -> None:
    found = timed(1000, kernel_us=2.0, issue_us=8.0)
    assert (found.host_us, found.lead_us, found.waits) == (8000.0, 4800.0, False)
    assert remarks(found) == [
        "the time may have gaps in which the device waited for the host: the call takes 8000 µs to issue, "
        "4800 µs of it ahead of the device"
    ]


def test_without_memory_for_the_flush_the_caches_are_said_to_be_warm(timed: Callable[..., Timing]) -> None:
    found = timed(1, kernel_us=5.0, issue_us=20.0, cold=False)
    assert found.lead_us == 0.0
    assert remarks(found) == [
        "timed with warm caches, and with the host beside the device: no memory was left to flush them"
    ]


def test_what_nobody_looked_at_has_no_remark() -> None:
    assert remarks(Timing(5.0, 0.1, 5)) == []


@pytest.mark.parametrize(("host_us", "times"), [(10.0, 1), (120.0, 1), (121.0, 2), (1200.0, 10), (1e6, 32)])
def test_the_flush_is_repeated_until_it_outlasts_the_host_by_a_quarter(host_us: float, times: int) -> None:
    assert flushes_needed(host_us, FLUSH_US) == times
    assert flushes_needed(host_us, 0.0) == 1
