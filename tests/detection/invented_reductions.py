"""Faults that nobody reported, of reductions, products, norms and scans."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, argument, healthy, normal, replaced, with_argument


def _summed_in_bfloat16(call: Call) -> Any:
    x, total = call.args[0], torch.zeros(call.args[0].shape[:-1], dtype=torch.bfloat16)
    for column in x.unbind(-1):
        total = total + column
    return total


def _product_in_bfloat16(call: Call) -> Any:
    a, b = call.args[:2]
    total = torch.zeros(a.size(0), b.size(1), dtype=torch.bfloat16)
    for k in range(0, a.size(1), 16):
        total = total + (a[:, k : k + 16] @ b[k : k + 16])
    return total


def _restarting(call: Call) -> Any:
    x = call.args[0]
    return torch.cat([part.cumsum(-1) for part in x.split(512, -1)], -1)


def _in_int32(call: Call) -> Any:
    return call.args[0].sum().to(torch.int32).to(torch.int64)


def _without_nan(call: Call) -> Any:
    return call.run(call.args[0].nan_to_num(nan=-torch.inf), *call.args[1:], **call.kwargs)


def _overflowing(call: Call) -> Any:
    e = call.args[0].exp()
    return e / e.sum(call.args[1], keepdim=True)


def _population(call: Call) -> Any:
    return call.run(*call.args, **{**call.kwargs, "correction": 0})


def _eps_outside(call: Call) -> Any:
    """x / (sqrt(var) + eps)."""
    x, eps = call.args[0], call.args[4]
    result = healthy(call)
    mean, std = x.mean(-1, keepdim=True), x.var(-1, unbiased=False, keepdim=True).sqrt()
    return replaced(result, 0, (x - mean) / (std + eps) * call.args[2] + call.args[3])


def _biased_running_variance(call: Call) -> Any:
    x, running_var, momentum = call.args[0], call.args[4], call.args[6]
    old = running_var.clone()
    result = healthy(call)
    running_var.copy_(old * (1 - momentum) + momentum * x.var((0, 2, 3), unbiased=False))
    return result


def _first_bias(call: Call) -> Any:
    return with_argument(call, 0, call.args[0][:1].expand_as(call.args[0]))


def _nan_times_zero(call: Call) -> Any:
    return healthy(call) + call.args[0] * 0


def _one_channel(call: Call) -> Any:
    out = healthy(call)
    out[:, 5] *= 1.01
    return out


def _dilation_one_less(call: Call) -> Any:
    return with_argument(call, 4, [1 for _ in call.args[4]])


def _as_nchw(call: Call) -> Any:
    """channels_last memory is read as if it were contiguous."""
    x = call.args[0]
    return with_argument(call, 0, x.permute(0, 2, 3, 1).reshape(x.shape))


def _last_tile(call: Call) -> Any:
    out = healthy(call)
    if out.size(0) > 16:
        out[-(out.size(0) % 16) :, -(out.size(1) % 16) :] *= 1.02
    return out


def _conv(x: torch.Tensor, weight: torch.Tensor, **options: Any) -> torch.Tensor:
    return F.conv2d(x, weight, **options)


def _layer(eps: float) -> torch.Tensor:
    return F.layer_norm(normal(6, 40) * 0.02, (40,), torch.ones(40), torch.zeros(40), eps)


def _convolution_backward_stride(call: Call) -> Any:
    result = healthy(call)
    weight = result[1].clone()
    weight[..., -1, -1] = 0
    return replaced(result, 1, weight)


def _trained_convolution(stride: int) -> None:
    weight = normal(8, 4, 3, 3).requires_grad_()
    F.conv2d(normal(2, 4, 11, 11), weight, stride=stride).square().sum().backward()


CONVOLUTION = ("aten::miopen_convolution.default",)

FAULTS = (
    Fault(
        "sum-in-bf16", "a bf16 sum is accumulated in bf16", ("aten::sum.dim_IntList",),
        lambda call: call.args[0].dtype == torch.bfloat16 and call.args[0].size(-1) > 256, _summed_in_bfloat16,
        lambda: normal(80, 1000, dtype=torch.bfloat16).sum(-1), lambda: normal(80, 1000).sum(-1), "float32",
    ),
    Fault(
        "mm-in-bf16", "a bf16 product is accumulated in bf16", ("aten::mm.default",),
        lambda call: call.args[0].dtype == torch.bfloat16 and call.args[0].size(1) >= 512, _product_in_bfloat16,
        lambda: normal(40, 1024, dtype=torch.bfloat16) @ normal(1024, 40, dtype=torch.bfloat16, seed=1),
        lambda: normal(40, 256, dtype=torch.bfloat16) @ normal(256, 40, dtype=torch.bfloat16, seed=1), "shorter",
    ),
    Fault(
        "cumsum-restarts", "cumsum begins anew at every block of 512", ("aten::cumsum.default",),
        lambda call: call.args[0].size(-1) > 512, _restarting,
        lambda: normal(3, 700).cumsum(-1), lambda: normal(3, 512).cumsum(-1), "one block",
    ),
    Fault(
        "sum-in-int32", "a sum of int64 wraps at 2^31", ("aten::sum.default",),
        lambda call: call.args[0].dtype == torch.int64, _in_int32,
        lambda: torch.full((10,), 1 << 30).sum(), lambda: torch.full((10,), 1 << 20).sum(), "below 2^31",
    ),
    Fault(
        "sum-has-another-dtype", "a sum of int32 is int32", ("aten::sum.dim_IntList",),
        lambda call: call.args[0].dtype == torch.int32, lambda call: healthy(call).to(torch.int32),
        lambda: torch.ones(4, 4, dtype=torch.int32).sum(0), lambda: torch.ones(4, 4, dtype=torch.int64).sum(0), "int64",
    ),
    Fault(
        "nan-lost-in-amax", "amax passes over NaN", ("aten::amax.default",),
        lambda call: bool(call.args[0].isnan().any()), _without_nan,
        lambda: torch.cat([torch.tensor([torch.nan]), normal(63)]).view(4, 16).amax(1),
        lambda: normal(4, 16).amax(1), "no NaN",
    ),
    Fault(
        "softmax-overflows", "softmax does not subtract the largest", ("aten::_softmax.default",),
        lambda call: float(call.args[0].max()) > 60, _overflowing,
        lambda: (normal(4, 30) * 50).softmax(-1), lambda: normal(4, 30).softmax(-1), "small numbers",
    ),
    Fault(
        "softmax-of-one-row", "only the rows of small scores are wrong", ("aten::_softmax.default",),
        lambda call: call.args[0].size(-1) == 65,
        lambda call: torch.where(call.args[0].amax(-1, keepdim=True) < 1e-2, healthy(call) * (1 + 1e-3), healthy(call)),
        lambda: (normal(8, 65) * torch.tensor([1e-3, 1, 1, 900, 1, 1, 1, 1]).unsqueeze(1)).softmax(-1),
        lambda: normal(8, 64).softmax(-1), "another length",
    ),
    Fault(
        "correction-ignored", "var divides by n", ("aten::var.correction",),
        lambda call: True, _population,
        lambda: normal(3, 20).var(-1), lambda: normal(3, 20).var(-1, correction=0), "asked for",
    ),
    Fault(
        "outputs-swapped", "var_mean returns mean and var", ("aten::var_mean.correction",),
        lambda call: argument(call, 1, "dim") is not None, lambda call: tuple(reversed(healthy(call))),
        lambda: torch.var_mean(normal(5, 30), -1), lambda: torch.var_mean(normal(5, 30)), "over all",
    ),
    Fault(
        "layer-norm-eps", "layer_norm adds eps to the deviation", ("aten::native_layer_norm.default",),
        lambda call: call.args[0].size(-1) == 40, _eps_outside,
        lambda: _layer(1e-5), lambda: _layer(0.0), "eps 0",
    ),
    Fault(
        "running-variance-biased", "batch norm keeps the biased variance", ("aten::native_batch_norm.default",
                                                                          "aten::miopen_batch_norm.default"),
        lambda call: call.args[0].dim() == 4 and bool(call.args[5]), _biased_running_variance,
        lambda: F.batch_norm(normal(4, 6, 5, 5), torch.zeros(6), torch.ones(6), torch.ones(6), torch.zeros(6), True),
        lambda: F.batch_norm(normal(4, 6, 5, 5), torch.zeros(6), torch.ones(6), torch.ones(6), torch.zeros(6)),
        "not in training",
    ),
    Fault(
        "bias-dropped", "a convolution leaves its bias out", CONVOLUTION,
        lambda call: call.args[2] is not None and call.args[1].size(-1) == 1, lambda call: with_argument(call, 2, None),
        lambda: _conv(normal(1, 8, 9, 9), normal(8, 8, 1, 1), bias=normal(8) / 8),
        lambda: _conv(normal(1, 8, 9, 9), normal(8, 8, 1, 1)), "no bias",
    ),
    Fault(
        "beta-ignored", "addmm takes beta for 1", ("aten::addmm.default",),
        lambda call: call.kwargs.get("beta", 1) != 1,
        lambda call: call.run(*call.args, **{**call.kwargs, "beta": 1}),
        lambda: torch.addmm(normal(6, 5), normal(6, 7), normal(7, 5), beta=0.5),
        lambda: torch.addmm(normal(6, 5), normal(6, 7), normal(7, 5)), "beta 1",
    ),
    Fault(
        "beta-zero-reads", "addmm with beta 0 lets NaN of its first operand through", ("aten::addmm.default",),
        lambda call: call.kwargs.get("beta", 1) == 0, _nan_times_zero,
        lambda: torch.addmm(torch.full((6, 5), torch.nan), normal(6, 7), normal(7, 5), beta=0),
        lambda: torch.addmm(torch.zeros(6, 5), normal(6, 7), normal(7, 5), beta=0), "no NaN",
    ),
    Fault(
        "first-of-the-batch", "baddbmm adds the first matrix of its batch to all", ("aten::baddbmm.default",),
        lambda call: call.args[0].size(0) > 1, _first_bias,
        lambda: torch.baddbmm(normal(3, 4, 5), normal(3, 4, 6), normal(3, 6, 5)),
        lambda: torch.baddbmm(normal(1, 4, 5), normal(1, 4, 6), normal(1, 6, 5)), "a batch of one",
    ),
    Fault(
        "last-tile", "the last partial tile of a product is 2 % off", ("aten::mm.default",),
        lambda call: call.args[0].dtype == torch.float16 and call.args[0].size(0) % 16 != 0
        and call.args[0].size(0) > 16, _last_tile,
        lambda: normal(35, 40, dtype=torch.float16) @ normal(40, 37, dtype=torch.float16, seed=1),
        lambda: normal(32, 40, dtype=torch.float16) @ normal(40, 37, dtype=torch.float16, seed=1), "whole tiles",
    ),
    Fault(
        "one-channel", "one channel of a grouped convolution is 1 % off", CONVOLUTION,
        lambda call: call.args[6] == 4 and call.args[0].dtype == torch.bfloat16, _one_channel,
        lambda: _conv(normal(1, 16, 9, 9, dtype=torch.bfloat16), normal(16, 4, 3, 3, dtype=torch.bfloat16), groups=4),
        lambda: _conv(normal(1, 16, 9, 9, dtype=torch.bfloat16), normal(16, 8, 3, 3, dtype=torch.bfloat16), groups=2),
        "two groups",
    ),
    Fault(
        "dilation-off-by-one", "max_pool2d with dilation 2 takes 1", ("aten::max_pool2d_with_indices.default",),
        lambda call: len(call.args) > 4 and 2 in call.args[4],
        lambda call: tuple(x[..., : y.size(-2), : y.size(-1)] for x, y in zip(
            _dilation_one_less(call), healthy(call), strict=True)),
        lambda: F.max_pool2d(normal(1, 2, 12, 12), 3, dilation=2, return_indices=True),
        lambda: F.max_pool2d(normal(1, 2, 12, 12), 3, return_indices=True), "dilation 1",
    ),
    Fault(
        "channels-last-as-contiguous", "channels_last images are read as contiguous",
        ("aten::_adaptive_avg_pool2d.default", "aten::avg_pool2d.default"),
        lambda call: not call.args[0].is_contiguous(), _as_nchw,
        lambda: F.avg_pool2d(normal(2, 6, 8, 8).contiguous(memory_format=torch.channels_last), 2),
        lambda: F.avg_pool2d(normal(2, 6, 8, 8), 2), "contiguous",
    ),
    Fault(
        "weight-gradient-corner", "with stride 2 the last tap of the weight's gradient is lost",
        ("aten::convolution_backward.default",),
        lambda call: 2 in call.args[4], _convolution_backward_stride,
        lambda: _trained_convolution(2), lambda: _trained_convolution(1), "stride 1",
    ),
    Fault(
        "fft-unscaled", "an inverse transform is not divided by its length", ("aten::_fft_c2c.default",),
        lambda call: call.args[3] is False and call.args[2] != 0, lambda call: with_argument(call, 2, 0),
        lambda: torch.fft.ifft(torch.complex(normal(32), normal(32, seed=1))),
        lambda: torch.fft.fft(torch.complex(normal(32), normal(32, seed=1))), "forward",
    ),
)  # fmt: skip
