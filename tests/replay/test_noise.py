"""Noise by element and by row: a large part of an output excuses nothing in a small one."""

from __future__ import annotations

import torch

from audit.replay.compare import LocalNoise, compare, fact_of
from audit.replay.expectation import expected_of, least_step
from audit.replay.noise import local_noise, locality_of, rounds_once
from audit.replay.overload import resolve
from audit.replay.reference import Reference
from audit.replay.standards import OpStandard
from audit.schema import Values


def test_a_step_among_subnormals_is_within_the_noise_and_the_flush_of_larger_ones_is_not():
    step = 2.0**-24
    tensor = torch.tensor([3 * step], dtype=torch.float16)
    wide = {"output": tensor.double()}
    expected = expected_of("output", tensor, wide, [wide], OpStandard("numeric"), "output")
    near, flushed = (compare(expected, torch.tensor([v]).half(), fact_of(tensor)) for v in (4 * step, 0.0))
    assert (near.worst_ratio < 1.0, flushed.worst_ratio < 8.0) == (True, True)
    large = torch.tensor([2.0**-15], dtype=torch.float16)
    expected = expected_of("output", large, {"output": large.double()}, [], OpStandard("numeric"), "output")
    assert compare(expected, torch.zeros(1).half(), fact_of(large)).worst_ratio > 300.0


def test_a_product_below_all_numbers_of_its_dtype_is_zero():
    tensor = torch.zeros(2)
    wide = {"output": torch.tensor([9e-56, 1e-50], dtype=torch.float64)}
    expected = expected_of("output", tensor, wide, [wide], OpStandard("numeric"), "element")
    assert compare(expected, tensor, fact_of(tensor)).worst_ratio < 1.0


def test_the_least_step_is_that_of_the_subnormals_of_each_dtype():
    dtypes = (torch.float16, torch.float32, torch.complex64, torch.float8_e5m2)
    assert [least_step(dtype) for dtype in dtypes] == [2.0**-24, 2.0**-149, 2.0**-149, 2.0**-16]


def test_terms_that_cancel_in_half_precision_are_as_noisy_as_in_float32(build, tmp_path):
    x, w, b, grad = (build.tensor([1], "bfloat16", storage=n, requires_grad=n < 3) for n in range(4))
    case = build.case(
        "aten::layer_norm.default", x, (1,), w, b, grads=(grad,), values={0: Values(minimum=1.7, maximum=1.7)}
    )
    reference = Reference(None, tmp_path, seed=0, n_threads=1)
    reference.prepare(case)
    expected = reference._prepared[case.key].expected["gradient of operand 1"]
    assert abs(float(expected.wide)) < 1e-9  # one element less its mean: the CPU's bfloat16 has 0, its float32 has not
    assert 1e-7 < expected.noise < 1e-3


def squares(build, tmp_path, dtype: str) -> tuple[float, float]:
    """Of the squares that a fused AdamW keeps: the noise, and the largest of them."""
    tensors = [(build.tensor([64], dtype, storage=n),) for n in range(4)]
    numbers = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    ones = {3: Values(minimum=0.0, maximum=0.0), 4: Values(minimum=1.0, maximum=1.0)}
    step = (build.tensor([], storage=4),)
    case = build.case(
        "aten::_fused_adamw_.default", *tensors, (), step, **numbers, amsgrad=False, maximize=False, values=ones
    )
    reference = Reference(None, tmp_path, seed=0, n_threads=1)
    reference.prepare(case)
    expected = reference._prepared[case.key].expected["exp_avg_sqs[0] (mutated)"]
    return expected.noise, float(expected.wide.max())


def test_a_fused_optimizer_may_take_its_numbers_in_float32(build, tmp_path):
    noise, largest = squares(build, tmp_path, "float32")
    assert 1.2e-5 < noise / largest < 1.5e-5  # 1 - 0.999f is off by 1.29e-5 of 1 - 0.999
    noise, largest = squares(build, tmp_path, "float64")
    assert noise / largest < 1e-14


def test_a_window_is_as_noisy_as_the_cpus_own_is_against_one_in_double_precision(build, tmp_path):
    case = build.case("aten::hann_window.default", 64)
    reference = Reference(None, tmp_path, seed=0, n_threads=1)
    reference.prepare(case)
    expected = reference._prepared[case.key].expected["output"]
    given = torch.hann_window(64, dtype=torch.float64)
    assert torch.equal(expected.wide, given)
    given_by_an_h200 = torch.hann_window(64)
    given_by_an_h200[2] = 0.00960737467
    assert compare(expected, given_by_an_h200, fact_of(given_by_an_h200)).worst_ratio < 8.0


def kind(build, op, *args, **kwargs):
    case = build.case(op, *args, **kwargs)
    return locality_of(case, resolve(op))


def test_elementwise_ops_have_noise_by_element_and_products_by_row(build):
    x = build.tensor([4, 4])
    assert kind(build, "aten::exp.default", x) == "element"
    assert kind(build, "aten::mul.Tensor", x, x) == "element"
    assert kind(build, "aten::mm.default", x, x) == "row"
    assert kind(build, "aten::scaled_dot_product_attention.default", x, x, x) == "row"


def test_ops_with_jumps_are_told_from_ops_that_mix_neighbours(build):
    x = build.tensor([4, 4])
    assert kind(build, "aten::remainder.Tensor", x, x) == "jump"
    assert kind(build, "aten::div.Tensor_mode", x, x, rounding_mode="floor") == "jump"
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


def test_a_jump_excuses_only_the_elements_beside_it():
    x = torch.arange(-5.0, 6.0)
    wide = x.double() % 3.0
    moved = [(x.double() * (1 + side * 16 * 2.0**-23)) % 3.0 for side in (1, -1)]
    noise = local_noise("jump", (11,), torch.float32, x % 3.0, wide, moved, 3.0)
    assert noise is not None
    beside = [bool(n > 2.0) for n in noise.values]
    assert beside == [value in (-3.0, 3.0) for value in x.tolist()]
    assert max(n for n, near in zip(noise.values.tolist(), beside, strict=True) if not near) < 1e-4
