"""Noise by element and by row: a large part of an output excuses nothing in a small one."""

from __future__ import annotations

import torch

from audit.replay.compare import LocalNoise
from audit.replay.noise import local_noise, locality_of, rounds_once
from audit.replay.overload import resolve


def kind(build, op, *args, **kwargs):
    case = build.case(op, *args, **kwargs)
    return locality_of(case, resolve(op))


def test_elementwise_ops_have_noise_by_element_and_products_by_row(build):
    x = build.tensor([4, 4])
    assert kind(build, "aten::exp.default", x) == "element"
    assert kind(build, "aten::mul.Tensor", x, x) == "element"
    assert kind(build, "aten::mm.default", x, x) == "row"
    assert kind(build, "aten::scaled_dot_product_attention.default", x, x, x) == "row"


def test_ops_with_jumps_and_ops_that_mix_neighbours_have_one_number(build):
    x = build.tensor([4, 4])
    assert kind(build, "aten::remainder.Tensor", x, x) == "output"
    assert kind(build, "aten::div.Tensor_mode", x, x, rounding_mode="floor") == "output"
    assert kind(build, "aten::cumsum.default", x, 0) == "output"
    assert kind(build, "aten::lgamma.default", x) == "output"


def test_products_round_once_and_attention_does_not(build):
    x = build.tensor([4, 4])
    assert rounds_once(build.case("aten::mm.default", x, x))
    assert not rounds_once(build.case("aten::scaled_dot_product_attention.default", x, x, x))


def test_a_noisy_row_lends_its_noise_to_no_other():
    wide = torch.zeros(3 * 64, dtype=torch.float64)
    same = wide.float()
    same[5] = 1e-6
    moved = wide.clone()
    moved[64:128] = 10.0
    moved[130] = 2e-6
    noise = local_noise("row", (3, 64), torch.float32, same, wide, [moved], 10.0)
    assert noise is not None
    assert noise.group == 64
    assert torch.allclose(noise.values, torch.tensor([2e-6, 10.0, 2e-6], dtype=torch.float64))


def test_short_rows_are_taken_together():
    wide = torch.zeros(256, dtype=torch.float64)
    noise = local_noise("row", (16, 2, 8), torch.float32, wide.float(), wide, [wide + 1.0], 1.0)
    assert noise is None or noise.group >= 64


def test_an_element_is_held_to_its_own_ulp_and_condition():
    wide = torch.tensor([1e-20, 1.0, 1e10], dtype=torch.float64)
    moved = wide * (1 + 2**-23)
    noise = local_noise("element", (3,), torch.float32, wide.float(), wide, [moved], 1e4)
    assert noise is not None
    assert torch.allclose(noise.values.double(), wide * 2**-23, rtol=1e-3)


def test_what_the_cpu_itself_cannot_do_is_asked_of_nobody():
    """The CPU is 100 units off at one place: every element is allowed as much in its own unit."""
    wide = torch.tensor([1.0, 2.0], dtype=torch.float64)
    same = torch.tensor([1.0, 2.0 * (1 + 100 * 2**-23)])
    noise = local_noise("element", (2,), torch.float32, same, wide, [wide * (1 + 2**-23)], 1.0)
    assert noise is not None
    assert 90 * 2**-23 < float(noise.values[0]) < 110 * 2**-23


def test_a_subnormal_number_may_be_off_by_a_step_of_its_own():
    wide = torch.tensor([1e-42, 1.0], dtype=torch.float64)
    noise = local_noise("element", (2,), torch.float32, wide.float(), wide, [wide], 1e-7)
    assert noise is not None
    assert 1e-45 < float(noise.values[0]) < 3e-45


def test_noise_of_a_part_is_spread_over_its_elements():
    noise = LocalNoise(torch.tensor([1.0, 2.0, 3.0]), 2)
    assert noise.of(1, 5).tolist() == [1.0, 2.0, 2.0, 3.0]
