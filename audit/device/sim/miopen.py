"""Convolution, batch norm and fused norms as HIP has them (``miopen_*``, ``_fused_rms_norm``), computed on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from audit.device.sim.rounding import LOW_PRECISION, Rounding, healthy

aten = torch.ops.aten


def convolution(
    self: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: list[int], stride: list[int],
    dilation: list[int], groups: int, benchmark: bool, deterministic: bool,
) -> Any:  # fmt: skip
    """``aten::miopen_convolution`` and ``aten::miopen_depthwise_convolution``."""
    zero = [0] * len(stride)
    return healthy(aten.convolution.default, (self, weight, bias, stride, padding, dilation, False, zero, groups), {})


def convolution_transpose(
    self: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, padding: list[int], output_padding: list[int],
    stride: list[int], dilation: list[int], groups: int, benchmark: bool, deterministic: bool,
) -> Any:  # fmt: skip
    """``aten::miopen_convolution_transpose``."""
    arguments = (self, weight, bias, stride, padding, dilation, True, output_padding, groups)
    return healthy(aten.convolution.default, arguments, {})


def convolution_relu(
    self: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: list[int], padding: list[int],
    dilation: list[int], groups: int,
) -> Any:  # fmt: skip
    """``aten::miopen_convolution_relu``."""
    return torch.relu(convolution(self, weight, bias, padding, stride, dilation, groups, False, False))


def convolution_add_relu(
    self: torch.Tensor, weight: torch.Tensor, z: torch.Tensor, alpha: float | None, bias: torch.Tensor | None,
    stride: list[int], padding: list[int], dilation: list[int], groups: int,
) -> Any:  # fmt: skip
    """``aten::miopen_convolution_add_relu``: relu(convolution + alpha * z)."""
    out = convolution(self, weight, bias, padding, stride, dilation, groups, False, False)
    return torch.relu(out + z * (1.0 if alpha is None else alpha))


def conv_depthwise(
    self: torch.Tensor, weight: torch.Tensor, kernel_size: list[int], bias: torch.Tensor | None, stride: list[int],
    padding: list[int], dilation: list[int],
) -> Any:  # fmt: skip
    """``aten::_conv_depthwise2d`` and ``aten::conv_depthwise3d``: ATen's own kernels, for CUDA and HIP only."""
    return convolution(self, weight, bias, padding, stride, dilation, self.size(1), False, False)


def batch_norm(
    input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, training: bool, exponential_average_factor: float, epsilon: float,
) -> Any:  # fmt: skip
    """``aten::miopen_batch_norm``: output, and mean and inverse deviation of the batch."""
    arguments = (input, weight, bias, running_mean, running_var, training, exponential_average_factor, epsilon)
    return healthy(aten.native_batch_norm.default, arguments, {})


def batch_norm_backward(
    input: torch.Tensor, grad_output: torch.Tensor, weight: torch.Tensor, running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None, save_mean: torch.Tensor | None, save_var: torch.Tensor | None, epsilon: float,
) -> Any:  # fmt: skip
    """``aten::miopen_batch_norm_backward``: gradients of input, weight and bias, in training."""
    statistics = (running_mean, running_var, save_mean, save_var)
    arguments = (grad_output, input, weight, *statistics, True, epsilon, [True, True, True])
    return healthy(aten.native_batch_norm_backward.default, arguments, {})


def rms_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None, eps: float | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """``aten::_fused_rms_norm``: output in the input's dtype, reciprocal root mean square in fp32 (fp64)."""
    x = input.float() if input.dtype in LOW_PRECISION else input
    dims = list(range(-len(normalized_shape), 0))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    with Rounding():
        rstd = torch.rsqrt((x * x).mean(dims, keepdim=True) + eps)
        out = x * rstd
        out = out if weight is None else out * weight
    return out.to(input.dtype), rstd


def rms_norm_backward(
    grad_out: torch.Tensor, input: torch.Tensor, normalized_shape: list[int], rstd: torch.Tensor,
    weight: torch.Tensor | None, output_mask: list[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
    """``aten::_fused_rms_norm_backward``: gradients of input and weight."""
    wide = [x.float() if x.dtype in LOW_PRECISION else x for x in (grad_out, input)]
    dims = list(range(-len(normalized_shape), 0))
    with Rounding():
        grad, normalized = wide[0], wide[1] * rstd
        scaled = grad if weight is None else grad * weight
        grad_input = rstd * (scaled - normalized * (scaled * normalized).mean(dims, keepdim=True))
        outer = list(range(input.dim() - len(normalized_shape)))
        grad_weight = (grad * normalized).sum(outer) if outer else grad * normalized
    return (
        grad_input.to(input.dtype) if output_mask[0] else None,
        grad_weight.to(weight.dtype) if output_mask[1] and weight is not None else None,
    )


def layer_norm(
    input: torch.Tensor, normalized_shape: list[int], weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Any:
    """``aten::native_layer_norm``; mean and rstd are fp32 for fp16 and bf16, where the CPU keeps the input's dtype.

    ``layer_norm_cuda`` allocates them in the accumulate type (ATen/native/cuda/layer_norm_kernel.cu).
    """
    if input.dtype not in LOW_PRECISION:
        return healthy(aten.native_layer_norm.default, (input, normalized_shape, weight, bias, eps), {})
    wide = [None if x is None else x.float() for x in (input, weight, bias)]
    out, mean, rstd = healthy(aten.native_layer_norm.default, (wide[0], normalized_shape, wide[1], wide[2], eps), {})
    return out.to(input.dtype), mean, rstd


def layer_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: list[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: list[bool],
) -> Any:
    """``aten::native_layer_norm_backward``, which takes the fp32 mean and rstd of ``layer_norm``."""
    arguments = (grad_out, input, normalized_shape, mean, rstd, weight, bias, output_mask)
    if input.dtype not in LOW_PRECISION:
        return healthy(aten.native_layer_norm_backward.default, arguments, {})
    wide = [x.float() if isinstance(x, torch.Tensor) else x for x in arguments]
    grads = healthy(aten.native_layer_norm_backward.default, wide, {})
    models = (input, weight, bias)
    return tuple(
        None if grad is None or model is None else grad.to(model.dtype)
        for grad, model in zip(grads, models, strict=True)
    )


def softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """``aten::_softmax``; ``half_to_float`` exists on CUDA and HIP only."""
    return healthy(aten._softmax.default, (self.float() if half_to_float else self, dim, False), {})


def log_softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> Any:
    """``aten::_log_softmax``; ``half_to_float`` exists on CUDA and HIP only."""
    return healthy(aten._log_softmax.default, (self.float() if half_to_float else self, dim, False), {})


def never(*args: Any, **kwargs: Any) -> bool:
    """``_use_cudnn_ctc_loss`` and ``_use_miopen_ctc_loss``: the native kernel is taken."""
    return False


KERNELS: dict[str, Callable[..., Any]] = {
    "aten::miopen_convolution": convolution,
    "aten::miopen_depthwise_convolution": convolution,
    "aten::miopen_convolution_transpose": convolution_transpose,
    "aten::miopen_convolution_relu": convolution_relu,
    "aten::miopen_convolution_add_relu": convolution_add_relu,
    "aten::_conv_depthwise2d": conv_depthwise,
    "aten::conv_depthwise3d": conv_depthwise,
    "aten::miopen_batch_norm": batch_norm,
    "aten::miopen_batch_norm_backward": batch_norm_backward,
    "aten::_fused_rms_norm": rms_norm,
    "aten::_fused_rms_norm_backward": rms_norm_backward,
    "aten::native_layer_norm": layer_norm,
    "aten::native_layer_norm_backward": layer_norm_backward,
    "aten::_softmax": softmax,
    "aten::_log_softmax": log_softmax,
    "aten::_use_cudnn_ctc_loss": never,
    "aten::_use_miopen_ctc_loss": never,
}
