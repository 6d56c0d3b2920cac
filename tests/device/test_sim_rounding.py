"""Healthy rounding of the simulated device: other bits than the CPU where a GPU has them, the same where none may."""

from __future__ import annotations

import pytest
import torch

from audit.device.sim.backend import SimTensor
from audit.device.sim.device import SimDevice
from audit.device.sim.rounding import interleaved, moved_one_ulp, reordered, restored
from tests.device.healthy_calls import ARITHMETIC, EXACT, HealthyCall

pytestmark = pytest.mark.usefixtures("simulated_device")


def _results(call: HealthyCall) -> tuple[torch.Tensor, torch.Tensor]:
    """First output on the simulated device and on the CPU."""
    device = SimDevice()
    actual, expected = call.function(*(SimTensor(t.clone()) for t in call.tensors)), call.function(*call.tensors)
    if isinstance(expected, tuple):
        actual, expected = actual[0], expected[0]
    return device.to_host(actual), expected


def test_most_floating_arithmetic_differs_bitwise_from_the_cpu() -> None:
    fp32 = [call for call in ARITHMETIC if all(t.dtype in (torch.float32, torch.float64) for t in call.tensors)]
    same = [call.name for call in fp32 if torch.equal(*_results(call))]
    assert len(fp32) >= 50
    assert len(same) <= len(fp32) * 0.2, f"bitwise equal to the CPU: {same}"


@pytest.mark.parametrize("call", ARITHMETIC, ids=lambda call: call.name)
def test_arithmetic_stays_within_a_few_rounding_units_of_an_fp64_result(call: HealthyCall) -> None:
    """At most three times the CPU's own worst error, or four units of the largest value."""
    actual, expected = _results(call)
    exact = call.function(*(t.double() if t.is_floating_point() else t for t in call.tensors))
    exact = exact[0] if isinstance(exact, tuple) else exact
    unit = torch.finfo(expected.dtype).eps * float(exact.abs().max())
    error, cpu_error = (float((t.double() - exact).abs().max()) for t in (actual, expected))
    assert error <= max(3 * cpu_error, 4 * unit)


@pytest.mark.parametrize("call", EXACT, ids=lambda call: call.name)
def test_exactly_rounded_ops_are_bitwise_those_of_the_cpu(call: HealthyCall) -> None:
    assert torch.equal(*_results(call))


@pytest.mark.parametrize("call", ARITHMETIC, ids=lambda call: call.name)
def test_a_healthy_result_repeats_bitwise(call: HealthyCall) -> None:
    assert torch.equal(_results(call)[0], _results(call)[0])


def test_about_half_of_the_elements_move_by_exactly_one_ulp_towards_zero() -> None:
    y = torch.randn(10_000)
    moved = moved_one_ulp(y, ())
    distance = y.view(torch.int32) - moved.view(torch.int32)
    assert distance.unique().tolist() == [0, 1]
    assert 0.4 < float(distance.float().mean()) < 0.6
    assert (moved.abs() <= y.abs()).all()


def test_values_that_every_device_hits_exactly_do_not_move() -> None:
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, torch.inf, -torch.inf, torch.nan, 1e-42])
    assert torch.equal(moved_one_ulp(special, ()).view(torch.int32), special.view(torch.int32))
    x = torch.randn(1000)
    assert torch.equal(moved_one_ulp(x, (x,)), x)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 33])
def test_interleaving_is_a_permutation_and_restored_undoes_it(n: int) -> None:
    assert interleaved(n).sort().values.tolist() == list(range(n))
    x = torch.randn(n, 4).t()
    assert torch.equal(restored(reordered(x, [1]), [1]), x)
    assert reordered(x, [1]).stride() == x.stride()
