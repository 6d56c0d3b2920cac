"""Planted faults in a large product are found, healthy products pass; docs/sensitivity.md has the sweep."""

from __future__ import annotations

import pytest
import torch

from tests.sensitivity import convolutions
from tests.sensitivity.__main__ import N_TRIALS, PART, WHOLE
from tests.sensitivity.products import Trial
from tests.sensitivity.trials import Found, costs, judged


def unexpected(found: list[Found]) -> list[Found]:
    """Faults that no rule found, healthy outputs that one accused."""
    return [one for one in found if bool(one.codes) == (one.fault == "healthy")]


def test_every_fault_of_a_small_product_is_found_and_a_healthy_one_passes():
    found = list(judged(1, (512, 1024, 896), sweep=False))
    assert len(found) == 9
    assert unexpected(found) == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_every_fault_of_a_convolution_by_winograd_is_found_and_a_healthy_one_passes(dtype):
    found = list(convolutions.judged(1, dtype, sweep=False))
    assert len(found) == 6
    assert unexpected(found) == []


@pytest.mark.evidence
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("seed", range(100, 100 + N_TRIALS))
def test_every_fault_of_a_convolution_is_found(seed, dtype):
    assert unexpected(list(convolutions.judged(seed, dtype, sweep=False))) == []


@pytest.mark.evidence
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(100, 100 + N_TRIALS))
def test_every_fault_is_found_at_the_bars_depth(seed):
    assert unexpected(list(judged(seed, PART, sweep=False))) == []


@pytest.mark.evidence
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", range(2000, 2016))
def test_every_fault_is_found_in_the_whole_product(seed):
    assert unexpected(list(judged(seed, WHOLE, sweep=False))) == []


@pytest.mark.evidence
@pytest.mark.timeout(7200)
def test_judging_the_whole_product_takes_a_tenth_of_its_reference():
    """CPU time of all threads, so that what else runs here counts little; the product alone, without its noise."""
    _, cpu = costs(Trial.make(7, *WHOLE), 7)
    assert cpu.share < 0.1
