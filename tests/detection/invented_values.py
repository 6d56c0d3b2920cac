"""Faults that nobody reported, of special values and dtypes: signs of zero, NaN, infinities, large integers."""

from __future__ import annotations

from typing import Any

import torch

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, always, healthy, normal

BF16, FP16 = torch.bfloat16, torch.float16


def _of(*values: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def _complex(real: list[float], imaginary: list[float]) -> torch.Tensor:
    return torch.complex(_of(*real), _of(*imaginary))


def _without_sign(call: Call) -> Any:
    """-0.0 becomes 0.0."""
    return healthy(call) + 0.0


def _infinity_left(call: Call) -> Any:
    return torch.where(torch.isneginf(call.args[0]), call.args[0], healthy(call))


def _through_double(call: Call) -> Any:
    return (call.args[0].double() + call.args[1].double()).to(torch.int64)


def _flushed(call: Call) -> Any:
    out = healthy(call)
    return torch.where(out.abs() < torch.finfo(out.dtype).smallest_normal, torch.zeros((), dtype=out.dtype), out)


def _plain_quotient(call: Call) -> Any:
    a, b = call.args
    return a * b.conj() / (b.real.square() + b.imag.square())


def _past_nan(call: Call) -> Any:
    return call.run(call.args[0].nan_to_num(nan=-torch.inf), *call.args[1:])


def _by_squares(call: Call) -> Any:
    x = call.args[0]
    n = x.size(-1)
    return (x.square().mean(-1) - x.mean(-1).square()) * n / (n - 1)


def _by_exponentials(call: Call) -> Any:
    """Terms cancel where the argument is small."""
    e = (2 * call.args[0]).exp()
    return (e - 1) / (e + 1)


def _either_branch(call: Call) -> Any:
    condition, a, b = call.args
    return condition * a + ~condition * b


def _ordinary_squares(call: Call) -> Any:
    return (call.args[0].real.square() + call.args[0].imag.square()).sqrt()


FAULTS = (
    Fault(
        "copy-loses-the-sign-of-zero", "clone makes 0.0 of -0.0", ("aten::clone.default",),
        lambda call: call.args[0].numel() == 6, _without_sign,
        lambda: _of(-0.0, 1, 2, -3, 0, 5).clone(), lambda: _of(-0.0, 1, 2, -3, 0).clone(), "another size",
    ),
    Fault(
        "angle-ignores-the-sign-of-zero", "atan2 takes -0.0 for 0.0", ("aten::atan2.default",), always,
        lambda call: call.run(call.args[0] + 0.0, call.args[1]),
        lambda: torch.atan2(_of(-0.0, 1), _of(-1, 2)), lambda: torch.atan2(_of(-1, 1), _of(-1, 2)), "no -0.0",
    ),
    Fault(
        "infinity-left", "nan_to_num leaves -Inf", ("aten::nan_to_num.default",), always, _infinity_left,
        lambda: _of(1, -torch.inf).nan_to_num(), lambda: _of(1, torch.inf).nan_to_num(), "only Inf",
    ),
    Fault(
        "promoted-by-a-scalar", "bf16 and a 0-dim float32 tensor give float32", ("aten::add.Tensor",),
        lambda call: call.args[0].dtype == BF16 and torch.is_tensor(call.args[1]) and call.args[1].dim() == 0,
        lambda call: healthy(call).float(),
        lambda: normal(9, dtype=BF16) + torch.tensor(1.5), lambda: normal(9, dtype=BF16) + _of(1.5, dtype=BF16),
        "one dimension", codes=("NUM205",),
    ),
    Fault(
        "int64-through-double", "sums of int64 beyond 2^53 pass through float64", ("aten::add.Tensor",),
        lambda call: call.args[0].dtype == torch.int64 and torch.is_tensor(call.args[1]), _through_double,
        lambda: torch.tensor([(1 << 53) + 1, (1 << 60) + 3]) + torch.tensor([2, 4]),
        lambda: torch.tensor([1, 3]) + torch.tensor([2, 4]), "small ones",
    ),
    Fault(
        "remainder-of-c", "remainder has the sign of the dividend", ("aten::remainder.Tensor",), always,
        lambda call: torch.fmod(*call.args),
        lambda: torch.tensor([-7, 7, -8]) % torch.tensor([3, 3, 5]),
        lambda: torch.tensor([7, 7, 8]) % torch.tensor([3, 3, 5]), "positive ones",
    ),
    Fault(
        "remainder-of-c-in-floats", "the same of floats, some of which are multiples", ("aten::remainder.Scalar",),
        lambda call: call.args[0].numel() == 11, lambda call: torch.fmod(*call.args),
        lambda: torch.arange(-5.0, 6.0) % 3.0, lambda: torch.arange(0.0, 12.0) % 3.0, "positive ones",
    ),
    Fault(
        "cast-flushes", "a cast to float16 makes 0 of subnormal numbers", ("aten::_to_copy.default",),
        lambda call: call.kwargs.get("dtype") == FP16 and call.args[0].numel() == 63, _flushed,
        lambda: torch.logspace(-7, 0, 63).half(), lambda: torch.logspace(-3, 0, 63).half(), "none subnormal",
    ),
    Fault(
        "quotient-overflows", "complex division squares its divisor", ("aten::div.Tensor",),
        lambda call: call.args[0].is_complex(), _plain_quotient,
        lambda: _complex([1e25, 1], [1e25, 2]) / _complex([3e25, 1], [1e25, 1]),
        lambda: _complex([1, 1], [1, 2]) / _complex([3, 1], [1, 1]), "small numbers",
    ),
    Fault(
        "magnitude-overflows", "the magnitude of complex numbers squares them", ("aten::abs.default",),
        lambda call: call.args[0].is_complex(), _ordinary_squares,
        lambda: _complex([3e30, 1], [4e30, 2]).abs(), lambda: _complex([3, 1], [4, 2]).abs(), "small numbers",
    ),
    Fault(
        "running-maximum-past-nan", "cummax passes over NaN", ("aten::cummax.default",),
        lambda call: bool(call.args[0].isnan().any()), _past_nan,
        lambda: _of(3, torch.nan, 5, 2).cummax(0), lambda: _of(3, 4, 5, 2).cummax(0), "no NaN",
    ),
    Fault(
        "variance-by-squares", "var subtracts the square of the mean from the mean of squares",
        ("aten::var.correction",),
        lambda call: float(call.args[0].mean()) > 100, _by_squares,
        lambda: (normal(8, 300) + 1000).var(-1), lambda: normal(8, 300).var(-1, correction=0), "mean 0",
    ),
    Fault(
        "tanh-by-exponentials", "tanh of small numbers loses digits", ("aten::tanh.default",),
        lambda call: float(call.args[0].abs().max()) < 0.01, _by_exponentials,
        lambda: (normal(500) * 1e-3).tanh(), lambda: normal(500).tanh(), "ordinary ones",
    ),
    Fault(
        "branch-not-taken", "where multiplies by the condition: NaN of the other branch stays", ("aten::where.self",),
        lambda call: bool(call.args[2].isnan().any()), _either_branch,
        lambda: torch.where(torch.tensor([True, False]), _of(1, 2), _of(torch.nan, 3)),
        lambda: torch.where(torch.tensor([True, False]), _of(1, 2), _of(2, 3)), "no NaN",
    ),
)  # fmt: skip
