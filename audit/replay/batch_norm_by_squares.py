"""Batch norm in training with the variance that MIOpen takes: the mean of squares less the square of the mean.

All of MIOpen's spatial kernels sum x and x^2 in float32 and end in ``variance = mad(-mean, mean, variance)``
(MIOpenBatchNormFwdTrainSpatial.cl, MIOpenBatchNormBwdSpatial.cl). One step of the mean of squares is then a step of the
variance too, some hundred times as large where a mean of ten deviations is subtracted; no moved operand shows it.
PyTorch's own kernels, for HIP too, and its layer and group norms merge means and variances, and are not excused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from audit.replay.overload import arguments_of, base_of, named_arguments
from audit.schema import Case, TensorSpec

_COMPOSITE = "batch_norm"
_NORMS = frozenset((_COMPOSITE, "miopen_batch_norm"))
_DTYPES = ("float32", "float16", "bfloat16")
_STEP = torch.finfo(torch.float32).eps


def by_squares_of(case: Case) -> Callable[..., Any] | None:
    """What computes the call so, with the op's own arguments; None where MIOpen would not."""
    base = base_of(case.op)
    if base not in _NORMS:
        return None
    arguments = arguments_of(case)
    image = arguments.get("input")
    if not isinstance(image, TensorSpec) or image.dtype not in _DTYPES or not arguments.get("training"):
        return None
    return lambda *args, **kwargs: _normed(named_arguments(case.op, args, kwargs), base == _COMPOSITE)


def _normed(a: Mapping[str, Any], output_only: bool) -> Any:
    """Forward, and backward by autograd, with one step more in the mean of squares."""
    image: Tensor = a["input"]
    x, dims = image.float(), [dim for dim in range(image.dim()) if dim != 1]
    shape = [1, -1, *([1] * (image.dim() - 2))]
    variance, mean = torch.var_mean(x, dims, correction=0)
    step = _STEP * (variance + mean.square()).detach()
    epsilon = a.get("epsilon", a.get("eps"))
    exact = torch.rsqrt(variance + epsilon)
    inverse = exact * (torch.rsqrt(variance + step + epsilon) / exact).detach()
    weight, bias = (None if t is None else t.float().view(shape) for t in (a["weight"], a["bias"]))
    result = (x - mean.view(shape)) * inverse.view(shape)
    result = result if weight is None else result * weight
    result = (result if bias is None else result + bias).to(image.dtype)
    _update(a, mean.detach(), variance.detach() + step, x.numel() // x.size(1))
    return result if output_only else (result, mean, inverse)


def _update(a: Mapping[str, Any], mean: Tensor, variance: Tensor, n: int) -> None:
    factor = a.get("exponential_average_factor", a.get("momentum"))
    for running, new in ((a["running_mean"], mean), (a["running_var"], variance * (n / max(n - 1, 1)))):
        if running is not None:
            running.lerp_(new.to(running.dtype), factor)
