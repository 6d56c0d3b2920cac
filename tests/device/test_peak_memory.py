"""Peak memory of a case, with the allocator's statistics standing in."""

from __future__ import annotations

import pytest
import torch

from audit.device.peak_memory import PeakMemory


class Allocator:
    """Bytes allocated now, and the most since the last reset."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.peak = 100
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: self.now)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: self.peak)
        monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: self._reset())

    def take(self, n: int) -> None:
        self.now += n
        self.peak = max(self.peak, self.now)

    def _reset(self) -> None:
        self.peak = self.now


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    return Allocator(monkeypatch)


@pytest.fixture
def peak(allocator: Allocator) -> PeakMemory:
    counted = PeakMemory(torch.device("cpu"))
    counted.begin()
    return counted


def test_what_was_there_before_does_not_count(allocator: Allocator, peak: PeakMemory) -> None:
    allocator.take(30)
    allocator.take(-30)
    assert peak.n_bytes == 30


def test_what_the_audit_takes_and_keeps_meanwhile_does_not_count(allocator: Allocator, peak: PeakMemory) -> None:
    allocator.take(30)
    with peak.set_aside():
        allocator.take(500)
    allocator.take(10)
    assert peak.n_bytes == 40


def test_a_peak_of_before_stays_though_the_audit_takes_more_and_gives_it_back(
    allocator: Allocator, peak: PeakMemory
) -> None:
    allocator.take(30)
    allocator.take(-30)
    with peak.set_aside():
        allocator.take(500)
        allocator.take(-500)
    allocator.take(10)
    assert peak.n_bytes == 30


def test_what_the_audit_gives_back_does_not_hide_what_the_case_takes(allocator: Allocator, peak: PeakMemory) -> None:
    with peak.set_aside():
        allocator.take(-100)
    allocator.take(30)
    assert peak.n_bytes == 30
