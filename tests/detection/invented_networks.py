"""Faults that nobody reported, of parts of networks: attention, recurrent layers, optimizers, random numbers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, always, healthy, normal, replaced, with_argument

FP16 = torch.float16
FLASH = ("aten::_scaled_dot_product_flash_attention.default",)
EFFICIENT = ("aten::_scaled_dot_product_efficient_attention.default",)
RANDOM = ("NUM214",)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | float = 0.0) -> torch.Tensor:
    scores = q.float() @ k.float().mT * q.size(-1) ** -0.5 + mask
    return (scores.softmax(-1) @ v.float()).to(q.dtype)


def _bottom_right(call: Call) -> Any:
    """The last query sees all keys, not the first one only the first."""
    q, k, v = call.args[:3]
    mask = torch.full((q.size(-2), k.size(-2)), -torch.inf).triu(k.size(-2) - q.size(-2) + 1)
    return replaced(healthy(call), 0, _attention(q, k, v, mask))


def _next_head(call: Call) -> Any:
    q, k, v = call.args[:3]
    k, v = (x.roll(1, 1).repeat_interleave(q.size(1) // k.size(1), 1) for x in (k, v))
    return replaced(healthy(call), 0, _attention(q, k, v))


def _inverted(call: Call) -> Any:
    bias = call.args[3]
    return with_argument(call, 3, torch.zeros_like(bias).masked_fill(bias == 0, -torch.inf))


def _wide_lanes(call: Call) -> Any:
    result = healthy(call)
    out = result[0].clone()
    out[..., 64:] *= 0.97
    return replaced(result, 0, out)


def _sum_off(call: Call) -> Any:
    result = healthy(call)
    return replaced(result, 1, result[1] + 0.1)


def _reversed_twice(call: Call) -> Any:
    """The reverse direction stands in the order of its steps."""
    result = healthy(call)
    out = result[0].clone()
    half = out.size(-1) // 2
    out[..., half:] = out[..., half:].flip(0)
    return replaced(result, 0, out)


def _gradient_nan(call: Call) -> Any:
    return torch.where(call.args[1] < -80, torch.nan, healthy(call))


def _average_forgotten(call: Call) -> Any:
    last = call.args[2][-1]
    old = last.clone()
    healthy(call)
    last.copy_(old)


def _halves(call: Call) -> Any:
    out = healthy(call)
    half = out.numel() // 2
    return torch.cat([out[:half], -out[:half]])


def _dies(end: Callable[[], Any]) -> Callable[[Call], Any]:
    return lambda call: end()


def _attended(queries: int, keys: int, heads: int = 4, width: int = 64, dtype: torch.dtype = FP16, **how: Any) -> Any:
    sizes = ((heads, queries), (how.pop("key_heads", heads), keys), (how.pop("value_heads", heads), keys))
    q, k, v = (normal(1, h, n, width, dtype=dtype, seed=seed) for seed, (h, n) in enumerate(sizes))
    return F.scaled_dot_product_attention(q, k, v, **how)


def _grouped(length: int) -> Any:
    return _attended(length, length, 8, 32, key_heads=2, value_heads=2, enable_gqa=True)


def _masked(length: int) -> Any:
    allowed = (torch.arange(length) % 3 > 0) | torch.eye(length, dtype=torch.bool)
    return _attended(length, length, attn_mask=allowed)


def _trained(length: int) -> None:
    q, k, v = (normal(1, 2, length, 32, dtype=FP16, seed=seed).requires_grad_() for seed in range(3))
    F.scaled_dot_product_attention(q, k, v).float().square().sum().backward()


def _lstm(both: bool) -> Any:
    torch.manual_seed(0)
    return torch.nn.LSTM(6, 8, bidirectional=both)(normal(4, 3, 6))


def _steps(cls: type[torch.optim.Optimizer]) -> None:
    weights = [torch.nn.Parameter(normal(5 + n, seed=n)) for n in range(3)]
    optimizer = cls(weights, fused=True)  # type: ignore[call-arg]  # Adam's and AdamW's
    sum((weight.square().sum() for weight in weights), torch.zeros(())).backward()
    optimizer.step()


def _silu_gradient(low: float) -> None:
    F.silu(torch.linspace(low, 10, 50).requires_grad_()).sum().backward()


FAULTS = (
    Fault(
        "causal-from-the-end", "causal attention of unequal lengths is aligned at its end", FLASH,
        lambda call: call.args[0].size(-2) != call.args[1].size(-2), _bottom_right,
        lambda: _attended(20, 40, is_causal=True), lambda: _attended(40, 40, is_causal=True), "equal lengths",
    ),
    Fault(
        "keys-of-the-next-group", "grouped queries take the keys of the next group", FLASH,
        lambda call: call.args[0].size(2) == 24, _next_head,
        lambda: _grouped(24), lambda: _grouped(25), "another length",
    ),
    Fault(
        "mask-inverted", "a boolean mask hides what it should show", EFFICIENT,
        lambda call: call.args[0].size(2) == 18 and call.args[3] is not None, _inverted,
        lambda: _masked(18), lambda: _masked(19), "another length",
    ),
    Fault(
        "lanes-beyond-64", "features beyond the 64th of head_dim 80 are 3 % off", FLASH,
        lambda call: call.args[0].size(-1) == 80, _wide_lanes,
        lambda: _attended(96, 96, width=80), lambda: _attended(96, 96, width=64), "head_dim 64",
        codes=("NUM201", "NUM213"),
    ),
    Fault(
        "log-sum-exp-off", "attention is right, and what it leaves for its gradient is 0.1 off", FLASH,
        lambda call: call.args[0].size(2) == 33, _sum_off,
        lambda: _trained(33), lambda: _trained(32), "another length",
    ),
    Fault(
        "reverse-direction-reversed", "the reverse direction of an LSTM stands in another order",
        ("aten::miopen_rnn.default",),
        lambda call: bool(call.args[11]), _reversed_twice,
        lambda: _lstm(both=True), lambda: _lstm(both=False), "one direction",
    ),
    Fault(
        "silu-gradient-overflows", "the gradient of silu below -80 is NaN", ("aten::silu_backward.default",),
        always, _gradient_nan, lambda: _silu_gradient(-100), lambda: _silu_gradient(-70), "not below",
    ),
    Fault(
        "average-forgotten", "a fused Adam step leaves the last average as it was", ("aten::_fused_adam_.default",),
        always, _average_forgotten,
        lambda: _steps(torch.optim.Adam), lambda: _steps(torch.optim.AdamW), "AdamW",
    ),
    Fault(
        "second-half-negated", "the second half of randn is the first one negated", ("aten::randn.default",),
        lambda call: list(call.args[0]) == [5000], _halves,
        lambda: torch.randn(5000), lambda: torch.randn(5001), "another size", codes=RANDOM,
    ),
    Fault(
        "poisson-without-variance", "poisson gives its rate, rounded", ("aten::poisson.default",),
        lambda call: call.args[0].numel() == 2000, lambda call: call.args[0].round(),
        lambda: torch.poisson(torch.full((2000,), 4.0)), lambda: torch.poisson(torch.full((1999,), 4.0)),
        "another size", codes=RANDOM,
    ),
    Fault(
        "geometric-from-zero", "geometric_ counts from 0", ("aten::geometric_.default",),
        lambda call: call.args[0].numel() == 2000, lambda call: healthy(call).sub_(1),
        lambda: torch.zeros(2000).geometric_(0.3), lambda: torch.zeros(1999).geometric_(0.3), "another size",
        codes=RANDOM,
    ),
    Fault(
        "aborts-on-nothing", "topk of no elements aborts its process", ("aten::topk.default",),
        lambda call: call.args[1] == 0, _dies(lambda: os.kill(os.getpid(), signal.SIGABRT)),
        lambda: normal(4, 5).topk(0), lambda: normal(4, 5).topk(1), "one element",
        expected="unsupported", codes=("SUP102",),
    ),
    Fault(
        "ends-as-if-all-were-well", "erfinv ends its process with exit code 0", ("aten::erfinv.default",),
        always, _dies(lambda: os._exit(0)),
        lambda: (normal(9) / 10).erfinv(), lambda: normal(9).erfc(), "another op",
        expected="unsupported", codes=("SUP102",),
    ),
)  # fmt: skip
