"""Faults that nobody reported, of outputs in half precision: no element is off by much, a part of them together is."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Condition, Effect, Fault, healthy, normal, replaced

BF16, FP16 = torch.bfloat16, torch.float16
CONVOLUTION = ("aten::miopen_convolution.default",)
ATTENTION = ("aten::_scaled_dot_product_flash_attention.default",)
COARSE = ("NUM213",)


def _part(place: Any, factor: float) -> Effect:
    """The first output is ``factor`` times too large at ``place``."""

    def effect(call: Call) -> Any:
        result = healthy(call)
        first = (result[0] if isinstance(result, (tuple, list)) else result).clone()
        first[place] = (first[place].float() * factor).to(first.dtype)
        return replaced(result, 0, first) if isinstance(result, (tuple, list)) else first

    return effect


def _rows(n: int, position: int = 0) -> Condition:
    return lambda call: call.args[position].dtype in (BF16, FP16) and call.args[position].size(0) == n


def _cut(call: Call) -> Any:
    exact = call.args[0].float() * call.args[1].float()
    return (exact.view(torch.int32) & ~0xFFFF).view(torch.float32).to(BF16)


def _cut_product(call: Call) -> Any:
    exact = call.args[0].float() @ call.args[1].float()
    return (exact.view(torch.int32) & ~0xFFFF).view(torch.float32).to(BF16)


def _last_left_out(call: Call) -> Any:
    """The denominator of the last row lacks the last element."""
    x = call.args[0].float()
    e = (x - x.amax(-1, keepdim=True)).exp()
    out = e / e.sum(-1, keepdim=True)
    out[-1] = e[-1] / e[-1, :-1].sum()
    return out.to(call.args[0].dtype)


def _gradient_of_value(call: Call) -> Any:
    result = healthy(call)
    return replaced(result, 2, (result[2].float() * 1.03).to(result[2].dtype))


def _linear(n: int) -> torch.Tensor:
    weight, bias = normal(200, 64, dtype=BF16, seed=1), normal(200, dtype=BF16, seed=2)
    return F.linear(normal(n, 64, dtype=BF16), weight, bias)


def _convolved(channels: int, kernel: int) -> torch.Tensor:
    weight = normal(16, channels, kernel, kernel, dtype=BF16, seed=1)
    return F.conv2d(normal(2, channels, 16, 16, dtype=BF16), weight, padding=kernel // 2)


def _normed(n: int) -> torch.Tensor:
    return F.layer_norm(normal(n, 256, dtype=BF16), (256,))


def _attended(length: int, dtype: torch.dtype = BF16, train: bool = False) -> None:
    q, k, v = (normal(1, 4, length, 64, dtype=dtype, seed=n).requires_grad_(train) for n in range(3))
    out = F.scaled_dot_product_attention(q, k, v)
    if train:
        out.float().square().sum().backward()


FAULTS = (
    Fault(
        "tile-of-a-product", "a tile of 16 x 16 of a bf16 product is 2 % off", ("aten::mm.default",),
        _rows(96), _part((slice(32, 48), slice(48, 64)), 1.02),
        lambda: normal(96, 128, dtype=BF16) @ normal(128, 96, dtype=BF16, seed=1),
        lambda: normal(95, 128, dtype=BF16) @ normal(128, 96, dtype=BF16, seed=1), "other rows", codes=COARSE,
    ),
    Fault(
        "row-of-a-linear", "the last row of a bf16 linear is 2 % off", ("aten::addmm.default",),
        _rows(65, 1), _part(64, 1.02), lambda: _linear(65), lambda: _linear(64), "64 rows", codes=COARSE,
    ),
    Fault(
        "columns-of-a-linear", "every 64th column of a bf16 linear is 2 % off", ("aten::addmm.default",),
        _rows(80, 1), _part((slice(None), slice(63, None, 64)), 1.02), lambda: _linear(80), lambda: _linear(79),
        "79 rows", codes=COARSE,
    ),
    Fault(
        "product-cuts", "a bf16 product cuts off instead of rounding (allowed)", ("aten::mm.default",),
        _rows(97), _cut_product,
        lambda: normal(97, 128, dtype=BF16) @ normal(128, 96, dtype=BF16, seed=1),
        lambda: normal(94, 128, dtype=BF16) @ normal(128, 96, dtype=BF16, seed=1), "other rows",
        expected="supported", codes=(),
    ),
    Fault(
        "row-of-a-norm", "the last row of a bf16 layer_norm is 3 % off", ("aten::native_layer_norm.default",),
        _rows(33), _part(32, 1.03), lambda: _normed(33), lambda: _normed(32), "32 rows", codes=COARSE,
    ),
    Fault(
        "denominator-lacks-one", "the last row of a bf16 softmax is divided by one term too few",
        ("aten::_softmax.default",),
        lambda call: call.args[0].size(-1) == 70, _last_left_out,
        lambda: (normal(64, 70, dtype=BF16) / 4).softmax(-1), lambda: (normal(64, 72, dtype=BF16) / 4).softmax(-1),
        "72 columns", codes=COARSE,
    ),
    Fault(
        "tile-of-a-convolution", "8 x 8 pixels of one channel of a bf16 convolution are 2 % off", CONVOLUTION,
        lambda call: call.args[0].size(1) == 8 and call.args[1].size(-1) == 3,
        _part((slice(None), 3, slice(0, 8), slice(0, 8)), 1.02),
        lambda: _convolved(8, 3), lambda: _convolved(9, 3), "9 channels", codes=COARSE,
    ),
    Fault(
        "convolution-too-large", "a bf16 convolution is 2 % too large all over", CONVOLUTION,
        lambda call: call.args[0].size(1) == 10 and call.args[0].dtype == BF16, _part(slice(None), 1.02),
        lambda: _convolved(10, 3), lambda: _convolved(11, 3), "11 channels", codes=COARSE,
    ),
    Fault(
        "channel-of-a-convolution", "one channel of a bf16 convolution with kernel 1 is 2 % off", CONVOLUTION,
        lambda call: call.args[0].size(1) == 12, _part((slice(None), 5), 1.02),
        lambda: _convolved(12, 1), lambda: _convolved(13, 1), "13 channels", codes=COARSE,
    ),
    Fault(
        "head-of-attention", "one head of bf16 attention is 2 % off", ATTENTION,
        lambda call: call.args[0].size(2) == 97, _part((slice(None), 2), 1.02),
        lambda: _attended(97), lambda: _attended(98), "another length", codes=COARSE,
    ),
    Fault(
        "gradient-of-value", "the gradient of attention's value is 3 % too large in bf16",
        ("aten::_scaled_dot_product_flash_attention_backward.default",),
        lambda call: call.args[1].dtype == BF16, _gradient_of_value,
        lambda: _attended(34, train=True), lambda: _attended(34, FP16, train=True), "fp16", codes=COARSE,
    ),
    Fault(
        "mish-too-large", "mish is 1 % too large in bf16", ("aten::mish.default",),
        lambda call: call.args[0].dtype == BF16, _part(slice(None), 1.01),
        lambda: F.mish(normal(4000, dtype=BF16)), lambda: F.mish(normal(4000)), "float32", codes=COARSE,
    ),
    Fault(
        "silu-tail", "the last 100 of 4,000 results of silu are 3 % too large in bf16", ("aten::silu.default",),
        lambda call: call.args[0].dtype == BF16, _part(slice(-100, None), 1.03),
        lambda: F.silu(normal(4000, dtype=BF16)), lambda: F.silu(normal(4000)), "float32", codes=COARSE,
    ),
    Fault(
        "multiplication-cuts", "a bf16 multiplication cuts off instead of rounding", ("aten::mul.Tensor",),
        lambda call: call.args[0].dtype == BF16 and call.args[0].numel() == 4000, _cut,
        lambda: normal(4000, dtype=BF16) * normal(4000, dtype=BF16, seed=1),
        lambda: normal(3999, dtype=BF16) * normal(3999, dtype=BF16, seed=1), "another size", codes=COARSE,
    ),
)  # fmt: skip
