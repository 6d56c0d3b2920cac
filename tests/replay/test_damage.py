"""Inputs that arrive damaged on the device, with a device whose copies really lose a byte."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audit.device.cpu import CpuDevice
from audit.device.guarded import GuardedStorage
from audit.replay.measure import DeviceSide
from audit.replay.reference import Reference


class LosingDevice(CpuDevice):
    """Damages the first byte of its first ``n`` copies."""

    def __init__(self, n: int) -> None:
        self.left = n

    def buffer(self, content: torch.Tensor, grows: bool = False) -> GuardedStorage:
        if self.left > 0:
            self.left -= 1
            content = content.clone()
            content[0] ^= 0xFF
        return super().buffer(content, grows)


@pytest.fixture
def measure(build, tmp_path: Path):
    def run(device: CpuDevice) -> dict:
        case = build.case("aten::neg.default", build.tensor([4]))
        job = Reference(None, tmp_path, seed=0).prepare(case)
        side = DeviceSide(device, [], tmp_path, seed=0, fills=(0x5B, 0xA4), timing_budget_s=0.001, n_threads=1)
        return side.measure(case, job, say=lambda stage: None)

    return run


def test_a_damaged_copy_is_made_again_once(measure):
    answer = measure(LosingDevice(1))
    assert (answer["n_damaged_inputs"], answer["outcome"]) == (0, {"kind": "ok"})
    assert answer["outputs"]["output"]["n_not_repeated"] == 0


def test_a_copy_that_stays_damaged_is_counted(measure):
    assert measure(LosingDevice(2))["n_damaged_inputs"] == 1


def test_an_undamaged_copy_is_not(measure):
    assert measure(LosingDevice(0))["n_damaged_inputs"] == 0
