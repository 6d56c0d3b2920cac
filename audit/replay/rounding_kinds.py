"""How the numbers of a narrow output come about, and how far steps of its inputs carry each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from audit.comparison import Rounding
from audit.replay.noise import LOW_PRECISION, Locality
from audit.replay.overload import base_of
from audit.replay.ulp import spacing_above_one
from audit.schema import Case

#: Ops with one rounding that IEEE 754 defines: all devices agree on every bit.
_ONE_OPERATION = frozenset({"add", "sub", "rsub", "mul", "_foreach_add", "_foreach_sub", "_foreach_mul"})
#: Elementwise ops that CUDA and HIP compute step by step in the narrow dtype, also where terms cancel.
_NARROW_STEPS = frozenset({"tanh_backward", "mse_loss_backward", "xlogy", "float_power", "logaddexp", "logaddexp2"})
#: Ops that mostly round once, by libraries that may do otherwise all over: only what differs from the rest is told.
_MOSTLY_ONCE = (
    "convolution", "miopen_convolution", "miopen_depthwise", "cudnn_convolution", "_convolution", "avg_pool",
    "_adaptive_avg_pool", "native_batch_norm", "miopen_batch_norm", "cudnn_batch_norm", "native_group_norm",
    "upsample_bilinear", "upsample_linear", "upsample_trilinear", "upsample_bicubic",
)  # fmt: skip
_ATTENTION = ("_scaled_dot_product_", "_flash_attention_", "_efficient_attention_", "scaled_dot_product_attention")
#: Steps of inputs in float32 may add up: their effect counts twice.
_SPREAD = 2.0
#: Elements looked at in one go, which stay in the cache.
_BLOCK = 1 << 18


def rounding_of(case: Case, locality: Locality, once: bool, dtype: torch.dtype) -> Rounding:
    """How an output of ``dtype`` is rounded; ``once`` where its op computes in float32 and rounds at the end."""
    base = base_of(case.op)
    if dtype not in LOW_PRECISION:
        return ""
    if once:
        return "once"
    if base in _ONE_OPERATION:
        return "one operation"
    if locality == "element" and base not in _NARROW_STEPS:
        return "elementwise"
    return "mostly once" if base.startswith((*_MOSTLY_ONCE, *_ATTENTION)) else ""


def spread_of(kind: Rounding, wide: torch.Tensor, moved: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """What inputs that move by a step of float32, which is computed in, change in each element: float32, flat.

    ``moved``: results of inputs that moved by a step of their own dtype, of float32 where the ``kind`` is once.
    """
    scale = _SPREAD
    if kind != "once":
        scale *= torch.finfo(torch.float32).eps / spacing_above_one(dtype)
    total = torch.zeros(wide.numel(), dtype=torch.float32)
    for start in range(0, wide.numel(), _BLOCK):
        part = slice(start, start + _BLOCK)
        for other in moved:
            change = (other[part].double() - wide[part].double()).mul_(scale).square_()
            if not math.isfinite(float(change.max())):
                change.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            total[part] += change
    return total.sqrt_()
