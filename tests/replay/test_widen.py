"""The double-precision form of a case: dtypes, defaults that hang on the dtype, sharing, and moved inputs."""

from __future__ import annotations

import torch

from audit.replay import widen
from audit.replay.inputs import ValueFile, materialise
from audit.schema import Named


def operands(case, move_seed=None):
    contents = materialise(case, ValueFile(None), 0)
    return contents, widen.operands(case, contents, move_seed)


def test_dtype_arguments_go_to_double_precision_wherever_they_stand(build):
    case = build.case(
        "aten::_log_softmax_backward_data.default",
        build.tensor([2]), build.tensor([2], storage=1), 0, Named("dtype", "bfloat16"),
    )  # fmt: skip
    assert widen.widened(case).args[3] == Named("dtype", "float64")
    complex_case = build.case("aten::sum.default", build.tensor([2]), dtype=Named("dtype", "complex64"))
    assert widen.widened(complex_case).kwargs == (("dtype", Named("dtype", "complex128")),)
    integer = build.case("aten::sum.default", build.tensor([2]), dtype=Named("dtype", "int32"))
    assert widen.widened(integer) == integer


def test_numbers_that_are_made_out_of_none_are_made_in_double_precision(build):
    double = (("dtype", Named("dtype", "float64")),)
    assert widen.widened(build.case("aten::hann_window.default", 64)).kwargs == double
    assert widen.widened(build.case("aten::linspace.default", 0, 1, 5, dtype=None)).kwargs == double
    given = build.case("aten::linspace.default", 0, 1, 5, dtype=Named("dtype", "int64"))
    assert widen.widened(given) == given
    turning = build.case("aten::linspace.default", 0, 1j, 5)
    assert widen.widened(turning).kwargs == (("dtype", Named("dtype", "complex128")),)


def test_scalars_as_float32_has_them(build):
    case = build.case("aten::_fused_sgd_.default", (build.tensor([2]),), 0.5, lr=0.1, nesterov=True, fused=1)
    single = widen.with_single_scalars(case)
    assert (single.args[1], dict(single.kwargs)) == (0.5, {"lr": 0.10000000149011612, "nesterov": True, "fused": 1})


def test_half_to_float_is_off_since_nothing_is_half(build):
    case = build.case("aten::_softmax.default", build.tensor([2], "float16"), 0, True)
    assert widen.widened(case).args[2] is False


def test_an_eps_that_defaults_by_dtype_is_written_out(build):
    eps = 2.0**-23
    x = build.tensor([2, 4], "bfloat16")
    assert widen.widened(build.case("aten::rms_norm.default", x, (4,))).kwargs == (("eps", eps),)
    assert widen.widened(build.case("aten::_fused_rms_norm.default", x, (4,), None, None)).args[3] == eps
    assert widen.widened(build.case("aten::rms_norm.default", x, (4,), None, 1e-3)).args[3] == 1e-3
    assert widen.widened(build.case("aten::rms_norm.default", build.tensor([4], "float64"), (4,))).kwargs == ()


def test_wide_operands_keep_values_strides_and_sharing(build):
    whole = build.tensor([3, 4], "bfloat16", storage=1)
    column = build.tensor([3], "bfloat16", storage=1, strides=(4,), offset=2, extent=12)
    case = build.case("aten::cat.default", (whole, column))
    contents, operand = operands(case)
    a, b = operand(0, whole), operand(1, column)
    assert (a.dtype, b.stride(), b.storage_offset()) == (torch.float64, (4,), 2)
    assert torch.equal(a.reshape(-1), contents["1"].view(torch.bfloat16).double())
    b[1] = 5.0
    assert a[1, 2] == 5.0


def test_integers_are_neither_widened_nor_moved(build):
    spec = build.tensor([5], "int32")
    _, operand = operands(build.case("aten::neg.default", spec), move_seed=1)
    assert operand(0, spec).dtype is torch.int32


def test_moved_inputs_differ_by_one_rounding_step_of_their_own_dtype(build):
    spec = build.tensor([1000], "bfloat16")
    case = build.case("aten::neg.default", spec)
    still = operands(case)[1](0, spec)
    moved = operands(case, move_seed=1)[1](0, spec)
    relative = (moved / still - 1).abs()
    torch.testing.assert_close(relative, torch.full_like(relative, 2.0**-7), rtol=1e-9, atol=0)
    share_up = (moved.abs() > still.abs()).double().mean().item()
    assert 0.4 < share_up < 0.6


def test_moving_in_the_narrow_dtype_changes_floats_alone(build):
    case = build.case("aten::mul.Tensor", build.tensor([50]), build.tensor([50], "int64", storage=1))
    contents = materialise(case, ValueFile(None), 0)
    moved = widen.moved_contents(case, contents, 1)
    assert not torch.equal(moved["0"], contents["0"])
    assert torch.equal(moved["1"], contents["1"])
