"""Faults that nobody reported, of elementwise ops and copies: tails, broadcasts, scalars, special values, rounding."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, argument, healthy, normal, with_argument

TINY = torch.finfo(torch.float32).smallest_normal


def _tail_unwritten(call: Call) -> Any:
    out, right = torch.empty_like(call.args[0]), healthy(call)
    done = out.numel() // 256 * 256
    out.view(-1)[:done] = right.view(-1)[:done]
    return out


def _expanded_is_packed(call: Call) -> Any:
    """The stride 0 of the second operand is taken for 1."""
    other = call.args[1]
    return call.run(call.args[0], other.reshape(-1)[0] + torch.arange(other.numel()).view_as(other) * 0.01)


def _flushed(call: Call) -> Any:
    out = healthy(call)
    return torch.where(out.abs() < TINY, 0.0, out)


def _coarse_where_small(call: Call) -> Any:
    """A fast exponential: right where it is large, ten bits where it is small."""
    out = healthy(call)
    return torch.where(out < 1e-3, (out.view(torch.int32) & ~0x1FFF).view(torch.float32), out)


def _without_nan(call: Call) -> Any:
    return healthy(call).nan_to_num(nan=0.0)


def _half_away_from_zero(call: Call) -> Any:
    x = call.args[0]
    return (x.abs() + 0.5).floor().copysign(x)


def _truncated(call: Call) -> Any:
    return call.run(call.args[0], call.args[1], rounding_mode="trunc")


def _cut_to_bfloat16(call: Call) -> Any:
    return (call.args[0].view(torch.int32) & ~0xFFFF).view(torch.float32).to(torch.bfloat16)


def _saturated(call: Call) -> Any:
    return call.args[0].clamp(-65504, 65504).to(torch.float16)


def _counts_bytes(call: Call) -> Any:
    return call.args[0].view(torch.uint8).sum()


def _through_float(call: Call) -> Any:
    return (call.args[0].float() * call.args[1].float()).to(torch.int64)


def _tanh_form(call: Call) -> Any:
    return call.run(call.args[0], approximate="tanh")


def _is_cast(call: Call, source: torch.dtype, target: torch.dtype) -> bool:
    return call.args[0].dtype == source and call.kwargs.get("dtype") == target


def _flags(byte: int) -> torch.Tensor:
    return torch.full((65,), byte, dtype=torch.uint8).view(torch.bool).sum()


def _exp_of(low: float) -> torch.Tensor:
    return torch.linspace(low, 20.0, 400).exp()


def _with_nan(x: torch.Tensor, place: int = 3) -> torch.Tensor:
    x = x.clone()
    x.view(-1)[place] = torch.nan
    return x


def _not_written(call: Call) -> Any:
    healthy(with_fresh(call))
    return call.args[0]


def with_fresh(call: Call) -> Call:
    """The call on a copy of what it would write into."""
    import dataclasses

    return dataclasses.replace(call, args=(call.args[0].clone(), *call.args[1:]))


FAULTS = (
    Fault(
        "tail-unwritten", "the last block of a size that is no multiple of 256 is not written", ("aten::atan.default",),
        lambda call: call.args[0].numel() % 256 != 0, _tail_unwritten,
        lambda: normal(1000).atan(), lambda: normal(1024).atan(), "a multiple of 256",
    ),
    Fault(
        "stride-zero", "an expanded operand is read as if it were packed", ("aten::mul.Tensor",),
        lambda call: torch.is_tensor(call.args[1]) and call.args[1].dim() > 0 and 0 in call.args[1].stride(),
        _expanded_is_packed,
        lambda: normal(8, 33) * torch.ones(1, 1).expand(8, 33), lambda: normal(8, 33) * torch.ones(8, 33), "packed",
    ),
    Fault(
        "alpha-ignored", "add leaves alpha out", ("aten::add.Tensor",),
        lambda call: call.kwargs.get("alpha", 1) not in (1, 2), lambda call: call.run(*call.args),
        lambda: torch.add(normal(50), normal(50, seed=1), alpha=3), lambda: torch.add(normal(50), normal(50, seed=1)),
        "alpha 1",
    ),
    Fault(
        "denormals-flushed", "products below the smallest normal number become 0", ("aten::mul.Tensor",),
        lambda call: call.args[0].dtype == torch.float32 and call.args[0].numel() == 77, _flushed,
        lambda: torch.logspace(-45, 0, 77) * 1.5, lambda: torch.logspace(-30, 0, 77) * 1.5, "no subnormal numbers",
    ),
    Fault(
        "fast-exponential", "exp keeps ten bits of results below 0.001", ("aten::exp.default",),
        lambda call: call.args[0].dtype == torch.float32 and float(call.args[0].min()) < -7, _coarse_where_small,
        lambda: _exp_of(-20.0), lambda: _exp_of(-6.0), "no small results",
    ),
    Fault(
        "nan-lost-in-maximum", "maximum gives 0 for NaN", ("aten::maximum.default",),
        lambda call: bool(call.args[0].isnan().any()), _without_nan,
        lambda: torch.maximum(_with_nan(normal(40)), normal(40, seed=1)),
        lambda: torch.maximum(normal(40), normal(40, seed=1)), "no NaN",
    ),
    Fault(
        "nan-lost-in-relu", "relu gives 0 for NaN", ("aten::relu.default",),
        lambda call: bool(call.args[0].isnan().any()), _without_nan,
        lambda: _with_nan(normal(40)).relu(), lambda: normal(40).relu(), "no NaN",
    ),
    Fault(
        "round-half-away", "round takes halves away from zero", ("aten::round.default",),
        lambda call: True, _half_away_from_zero,
        lambda: torch.tensor([0.5, 1.5, -2.5, 3.2]).round(), lambda: torch.tensor([0.4, 1.6, -2.6, 3.2]).round(),
        "no halves",
    ),
    Fault(
        "division-truncates", "floor division of negative integers truncates", ("aten::div.Tensor_mode",),
        lambda call: call.kwargs.get("rounding_mode") == "floor", _truncated,
        lambda: torch.div(torch.arange(-9, 9), torch.tensor([4]), rounding_mode="floor"),
        lambda: torch.div(torch.arange(0, 18), torch.tensor([4]), rounding_mode="floor"), "no negative ones",
    ),
    Fault(
        "cast-truncates", "float32 to bfloat16 cuts off", ("aten::_to_copy.default",),
        lambda call: _is_cast(call, torch.float32, torch.bfloat16) and call.args[0].numel() == 91, _cut_to_bfloat16,
        lambda: normal(91).to(torch.bfloat16), lambda: normal(91).to(torch.float16), "to float16",
    ),
    Fault(
        "cast-saturates", "float32 to float16 gives 65504 for what is Inf", ("aten::_to_copy.default",),
        lambda call: _is_cast(call, torch.float32, torch.float16) and call.args[0].numel() == 92, _saturated,
        lambda: (torch.arange(92.0) * 1000).half(), lambda: (torch.arange(92.0) * 100).half(), "within the range",
    ),
    Fault(
        "bytes-of-booleans", "the sum of a mask counts its bytes, which are not 0 or 1", ("aten::sum.default",),
        lambda call: call.args[0].dtype == torch.bool, _counts_bytes,
        lambda: _flags(2), lambda: _flags(1), "bytes of 1",
        missed="the CPU itself counts the bytes of such a mask, so there is no reference to differ from",
    ),
    Fault(
        "int64-through-float", "products of large int64 pass through float32", ("aten::mul.Tensor",),
        lambda call: call.args[0].dtype == torch.int64 and torch.is_tensor(call.args[1]), _through_float,
        lambda: torch.arange(50) * torch.arange(1 << 21, (1 << 21) + 50),
        lambda: torch.arange(50) * torch.arange(1, 51), "small ones",
    ),
    Fault(
        "gelu-by-tanh", "gelu takes the approximation that was not asked for", ("aten::gelu.default",),
        lambda call: call.kwargs.get("approximate", "none") == "none", _tanh_form,
        lambda: F.gelu(normal(300)), lambda: F.gelu(normal(300), approximate="tanh"), "asked for",
    ),
    Fault(
        "gelu-backward-by-tanh", "only the gradient takes the other form", ("aten::gelu_backward.default",),
        lambda call: call.kwargs.get("approximate", "none") == "none",
        lambda call: call.run(*call.args, approximate="tanh"),
        lambda: F.gelu(normal(300).requires_grad_()).sum().backward(),
        lambda: F.gelu(normal(300).requires_grad_(), approximate="tanh").sum().backward(), "asked for",
    ),
    Fault(
        "in-place-into-a-copy", "add_ computes into a copy and leaves its tensor", ("aten::add_.Tensor",),
        lambda call: call.args[0].dim() == 2 and not call.args[0].is_contiguous(), _not_written,
        lambda: normal(7, 9).t().add_(1.5), lambda: normal(9, 7).add_(1.5), "contiguous",
    ),
    Fault(
        "conj-ignored", "the conjugate of a complex tensor is the tensor", ("aten::_conj.default",),
        lambda call: True, lambda call: call.args[0].clone(),
        lambda: torch.complex(normal(4, 4), normal(4, 4)).conj() @ torch.complex(normal(4, 4), normal(4, 4)),
        lambda: torch.complex(normal(4, 4), normal(4, 4)) @ torch.complex(normal(4, 4), normal(4, 4)), "not conjugated",
    ),
    Fault(
        "triangle-off-by-one", "tril of a wide matrix keeps one diagonal more", ("aten::tril.default",),
        lambda call: call.args[0].size(-1) > call.args[0].size(-2),
        lambda call: call.run(call.args[0], argument(call, 1, "diagonal", 0) + 1),
        lambda: normal(5, 9).tril(), lambda: normal(9, 9).tril(), "square",
    ),
    Fault(
        "wraps-at-the-limit", "what lies beyond 2^20 elements of a concatenation is taken from its beginning",
        ("aten::cat.default",),
        lambda call: sum(x.numel() for x in call.args[0]) > 1 << 20,
        lambda call: with_argument(call, 0, [x.view(-1)[torch.arange(x.numel()) % (1 << 19)] for x in call.args[0]]),
        lambda: torch.cat([normal((1 << 19) + 8), normal((1 << 19) + 8, seed=1)]),
        lambda: torch.cat([normal(1 << 19), normal(1 << 19, seed=1)]), "at the limit", scaled="2^20 for 2^31",
    ),
)  # fmt: skip
