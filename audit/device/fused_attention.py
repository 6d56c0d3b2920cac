"""Which kernel scaled_dot_product_attention takes on a HIP device, and how that lays its results out in memory.

The layouts decide what comes after: a view of one is a copy of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

AttentionKernel = Literal["flash", "efficient", "math"]

#: AOTriton's limit on ROCm, "FlashAttention on ROCm forward only supports head dimension at most 512".
MAX_HEAD_DIM = 512


def choose(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> AttentionKernel:
    """``flash``, ``efficient`` or ``math``, by the rules of sdp_utils.cpp for ROCm on a gfx942.

    Flash takes fp16 and bf16 without a mask; memory-efficient also fp32 and a mask that is boolean or has the dtype of
    the query, but neither grouped queries nor a mask together with ``is_causal``; both want the last dimension of every
    tensor, the mask's too, without gaps (a bias that was permuted has them); everything else is math. What the
    program has switched off is passed over (torch.nn.attention.sdpa_kernel). Raises RuntimeError where that was math.
    """
    same_heads = query.dim() == 4 and query.size(1) == key.size(1) == value.size(1)
    fits = (
        query.dim() == key.dim() == value.dim() == 4
        and query.size(-1) == key.size(-1) == value.size(-1) <= MAX_HEAD_DIM
        and 0 not in (query.numel(), key.numel())
        and query.dtype == key.dtype == value.dtype
        and (same_heads or enable_gqa)
        and all(tensor.stride(-1) == 1 for tensor in (query, key, value))
    )
    half = query.dtype in (torch.float16, torch.bfloat16)
    if fits and mask is None and half and torch.backends.cuda.flash_sdp_enabled():
        return "flash"
    mask_fits = mask is None or (
        mask.dtype in (torch.bool, query.dtype) and not is_causal and mask.dim() > 0 and mask.stride(-1) == 1
    )
    taken = same_heads and mask_fits and (half or query.dtype == torch.float32)
    if fits and taken and torch.backends.cuda.mem_efficient_sdp_enabled():
        return "efficient"
    if not torch.backends.cuda.math_sdp_enabled():
        raise RuntimeError("No available kernel. Aborting execution.")
    return "math"


def result_strides(kernel: AttentionKernel, sizes: Sequence[int], operand: torch.Tensor) -> tuple[int, ...]:
    """The strides of an output, allocated beside the query, or of a gradient, beside its operand.

    All are (batch, heads, length, dim). Flash makes its results like the operand, memory-efficient by batch, length,
    heads, dim (attention.cu and attention_backward.cu of ATen, the same files for CUDA and HIP), math by heads. Seen so
    on an NVIDIA H200 (torch 2.11) for 98 combinations of dtype, layout, mask and heads, with cuDNN in flash's place.
    """
    if kernel == "flash" and tuple(sizes) == tuple(operand.size()):
        shape_only = torch.empty_strided(operand.size(), operand.stride(), device="meta")
        return torch.empty_like(shape_only.transpose(1, 2)).transpose(1, 2).stride()
    _, heads, length, dim = sizes
    if kernel == "math":
        return heads * length * dim, length * dim, dim, 1
    return heads * length * dim, dim, heads * dim, 1


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """The tensor itself where it has them, else a copy."""
    if tensor.stride() == strides:
        return tensor
    return tensor.new_empty_strided(tensor.size(), strides).copy_(tensor)
