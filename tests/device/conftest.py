"""Leaves no planted fault and no filled memory behind for the next test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from audit.device import hostmemory
from audit.device.sim.executor import EXECUTOR


@pytest.fixture(autouse=True)
def _healthy_afterwards() -> Iterator[None]:
    yield
    EXECUTOR.faults = {}
    EXECUTOR.phase = "forward"
    hostmemory.stop_filling()
