"""Attention of a program whose GPU is the CPU: with results laid out as the GPU's kernel lays them out.

The values are the CPU's. Without this a program would take a view where on the GPU it copies, or the other way round,
forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from audit.device.fused_attention import AttentionKernel, choose, result_strides, with_strides
from audit.tracer.transforms import is_transformed

ATTENTION = torch.ops.aten.scaled_dot_product_attention.default


def run_attention(run: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``run`` with the arguments of the call; gradients of query, key and value are laid out like a GPU's, too."""
    kernel = None if is_transformed() else _chosen(*args, **kwargs)
    if kernel is None:
        return run(ATTENTION, args, kwargs)
    operands = [_GradLaidOut.apply(operand, result_strides(kernel, operand.size(), operand)) for operand in args[:3]]
    output = run(ATTENTION, (*operands, *args[3:]), kwargs)
    strides = result_strides(kernel, output.size(), args[0])
    return output if output.stride() == strides else _LaidOut.apply(output, strides)


def _chosen(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionKernel | None:
    """None where the operands are not four-dimensional, or the program has switched off all that the device takes."""
    try:
        return choose(query, key, value, attn_mask, is_causal, enable_gqa) if query.dim() == key.dim() == 4 else None
    except RuntimeError:  # the call itself will say so
        return None


class _LaidOut(torch.autograd.Function):
    """A copy with other strides; the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, output: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        return with_strides(output, strides)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grad, None


class _GradLaidOut(torch.autograd.Function):
    """The operand as it is; its gradient with other strides."""

    @staticmethod
    def forward(ctx: Any, operand: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
        ctx.strides = strides
        return operand.view_as(operand)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return with_strides(grad, ctx.strides), None
