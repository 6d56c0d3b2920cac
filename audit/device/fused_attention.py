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


def refusals(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    is_causal: bool,
    enable_gqa: bool,
) -> tuple[str, ...]:
    """Why ``choose`` takes neither fused kernel, a sentence for each; none for one that it would take.

    What the program has switched off counts as on: that is known, and not the device's reason.
    """
    common = _refused_by_both(query, key, value, enable_gqa)
    named = (
        ("flash attention", common or _refused_by_flash(query, mask)),
        ("memory-efficient attention", common or _refused_by_efficient(query, key, value, mask, is_causal)),
    )
    return tuple(f"{kernel}: {reason}" for kernel, reason in named if reason)


def _refused_by_flash(query: torch.Tensor, mask: torch.Tensor | None) -> str:
    if mask is not None:
        return "it takes no mask"
    return "" if query.dtype in (torch.float16, torch.bfloat16) else f"it does not take {_name(query.dtype)}"


def _refused_by_efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, is_causal: bool
) -> str:
    if not query.size(1) == key.size(1) == value.size(1):
        return f"{query.size(1)} heads of queries over {key.size(1)} of keys"
    if query.dtype not in (torch.float16, torch.bfloat16, torch.float32):
        return f"it does not take {_name(query.dtype)}"
    if mask is None:
        return ""
    if is_causal:
        return "a mask together with is_causal"
    if mask.dtype not in (torch.bool, query.dtype):
        return f"a mask of {_name(mask.dtype)}"
    return "" if mask.dim() > 0 and mask.stride(-1) == 1 else "a mask whose last dimension has gaps"


def _refused_by_both(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> str:
    """What neither kernel takes, in the order in which ``choose`` asks."""
    tensors = (query, key, value)
    if any(tensor.dim() != 4 for tensor in tensors):
        return "the inputs do not have four dimensions"
    head_dims = [tensor.size(-1) for tensor in tensors]
    if len(set(head_dims)) > 1 or head_dims[0] > MAX_HEAD_DIM:
        return f"head dimensions of {', '.join(map(str, head_dims))}"
    if 0 in (query.numel(), key.numel()):
        return "an input is empty"
    if len({tensor.dtype for tensor in tensors}) > 1:
        return f"dtypes of {', '.join(_name(tensor.dtype) for tensor in tensors)}"
    if not (query.size(1) == key.size(1) == value.size(1) or enable_gqa):
        return f"{query.size(1)} heads of queries over {key.size(1)} of keys without enable_gqa"
    return "" if all(tensor.stride(-1) == 1 for tensor in tensors) else "an input's last dimension has gaps"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


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
