"""Fused attention as HIP has it (AOTriton's flash and memory-efficient kernels), computed on the CPU.

Accumulates in fp32 (fp64 for fp64), and rounds once at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from audit.device.fused_attention import AttentionKernel, result_strides, with_strides
from audit.device.sim.rounding import Rounding


@dataclass(frozen=True)
class _Scores:
    """Probabilities after dropout, before it, and log-sum-exp: (batch, heads, queries, keys) and without keys."""

    dropped: torch.Tensor
    probabilities: torch.Tensor
    logsumexp: torch.Tensor
    keep: torch.Tensor | None


def _wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.float64 else x.float()


def _repeat_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x if x.size(1) == heads else x.repeat_interleave(heads // x.size(1), dim=1)


def _scores(
    query: torch.Tensor, key: torch.Tensor, bias: torch.Tensor | None, p: float, causal: bool, scale: float, seed: int,
    saved: torch.Tensor | None = None,
) -> _Scores:  # fmt: skip
    """``saved``: the log-sum-exp that a forward left for its backward."""
    scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    if bias is not None:
        scores = scores + bias
    if causal:
        allowed = torch.ones(query.size(-2), key.size(-2), dtype=torch.bool).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    logsumexp = torch.logsumexp(scores, -1) if saved is None else saved
    exponentials = torch.softmax(scores, -1) if saved is None else torch.exp(scores - saved.unsqueeze(-1))
    # A row without any allowed key gives zeros in the fused kernels, not NaN.
    probabilities = exponentials.masked_fill(torch.isneginf(logsumexp).unsqueeze(-1), 0.0)
    if p == 0.0:
        return _Scores(probabilities, probabilities, logsumexp, None)
    keep = torch.rand(probabilities.shape, generator=torch.Generator().manual_seed(seed)) >= p
    factor = 0.0 if p >= 1.0 else 1.0 / (1.0 - p)
    return _Scores(probabilities * keep * factor, probabilities, logsumexp, keep * factor)


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None, p: float, causal: bool,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    heads, seed = query.size(1), torch.randint(2**62, ()) if p else torch.zeros((), dtype=torch.int64)
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    q, k, v = _wide(query), _wide(_repeat_heads(key, heads)), _wide(_repeat_heads(value, heads))
    with Rounding():
        scores = _scores(q, k, None if bias is None else _wide(bias), p, causal, scale, int(seed))
        out = torch.matmul(scores.dropped, v).to(query.dtype)
    return out, scores.logsumexp, seed


def _backward(
    grad: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, bias: torch.Tensor | None,
    p: float, causal: bool, scale: float | None, seed: int, saved: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:  # fmt: skip
    """Gradients of query, key, value and bias (the bias's at full size) by the closed form, from the log-sum-exp that
    the forward left, as the kernels have them."""
    heads = query.size(1)
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    g, q = _wide(grad), _wide(query)
    k, v = _wide(_repeat_heads(key, heads)), _wide(_repeat_heads(value, heads))
    with Rounding():
        scores = _scores(q, k, None if bias is None else _wide(bias), p, causal, scale, seed, saved)
        grad_v = torch.matmul(scores.dropped.transpose(-2, -1), g)
        grad_p = torch.matmul(g, v.transpose(-2, -1))
        if scores.keep is not None:
            grad_p = grad_p * scores.keep
        weighted = scores.probabilities * grad_p
        grad_s = weighted - scores.probabilities * weighted.sum(-1, keepdim=True)
        grad_q = torch.matmul(grad_s, k) * scale
        grad_k = torch.matmul(grad_s.transpose(-2, -1), q) * scale
        grad_k, grad_v = (_sum_heads(x, key.size(1)) for x in (grad_k, grad_v))
    return grad_q.to(query.dtype), grad_k.to(key.dtype), grad_v.to(value.dtype), grad_s


def _laid_out(kernel: AttentionKernel, result: torch.Tensor, operand: torch.Tensor) -> torch.Tensor:
    return with_strides(result, result_strides(kernel, result.size(), operand))


def _sum_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x if x.size(1) == heads else x.unflatten(1, (heads, -1)).sum(2)


def flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0, is_causal: bool = False,
    return_debug_mask: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    """``aten::_scaled_dot_product_flash_attention``: the nine results of the CUDA and HIP kernel."""
    out, logsumexp, seed = _forward(query, key, value, None, dropout_p, is_causal, scale)
    nothing = torch.empty(0, dtype=query.dtype)
    lengths = (torch.empty(0, dtype=torch.int32), torch.empty(0, dtype=torch.int32), query.size(2), key.size(2))
    return (_laid_out("flash", out, query), logsumexp, *lengths, seed, torch.zeros((), dtype=torch.int64), nothing)


def flash_backward(
    grad_out: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, out: torch.Tensor,
    logsumexp: torch.Tensor, cum_seq_q: torch.Tensor, cum_seq_k: torch.Tensor, max_q: int, max_k: int, dropout_p: float,
    is_causal: bool, philox_seed: torch.Tensor, philox_offset: torch.Tensor, *, scale: float | None = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """``aten::_scaled_dot_product_flash_attention_backward``: gradients of query, key and value."""
    seed = int(philox_seed.flatten()[0]) if dropout_p and philox_seed.numel() else 0
    grads = _backward(grad_out, query, key, value, None, dropout_p, is_causal, scale, seed, logsumexp)[:3]
    return tuple(_laid_out("flash", grad, like) for grad, like in zip(grads, (query, key, value), strict=True))


def efficient(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_bias: torch.Tensor | None,
    compute_log_sumexp: bool, dropout_p: float = 0.0, is_causal: bool = False, *, scale: float | None = None,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """``aten::_scaled_dot_product_efficient_attention``: output, log-sum-exp, seed and offset."""
    out, logsumexp, seed = _forward(query, key, value, attn_bias, dropout_p, is_causal, scale)
    if not compute_log_sumexp:
        logsumexp = logsumexp.new_empty((*logsumexp.shape[:2], 0))
    return _laid_out("efficient", out, query), logsumexp, seed, torch.zeros((), dtype=torch.int64)


def efficient_backward(
    grad_out_: torch.Tensor | None, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_bias: torch.Tensor | None, out: torch.Tensor, logsumexp: torch.Tensor, philox_seed: torch.Tensor,
    philox_offset: torch.Tensor, dropout_p: float, grad_input_mask: list[bool], is_causal: bool = False, *,
    scale: float | None = None,
) -> tuple[torch.Tensor | None, ...]:  # fmt: skip
    """``aten::_scaled_dot_product_efficient_attention_backward``: gradients of query, key, value and bias."""
    if grad_out_ is None:
        return None, None, None, None
    seed = int(philox_seed) if dropout_p else 0
    *grads, grad_bias = _backward(grad_out_, query, key, value, attn_bias, dropout_p, is_causal, scale, seed, logsumexp)
    laid_out_grads = [_laid_out("efficient", grad, query) for grad in grads]
    if attn_bias is None or not grad_input_mask[3]:
        return (*laid_out_grads, None)
    return (*laid_out_grads, grad_bias.sum_to_size(attn_bias.shape).to(attn_bias.dtype))


KERNELS: dict[str, Callable[..., Any]] = {
    "aten::_scaled_dot_product_flash_attention": flash,
    "aten::_scaled_dot_product_flash_attention_backward": flash_backward,
    "aten::_scaled_dot_product_efficient_attention": efficient,
    "aten::_scaled_dot_product_efficient_attention_backward": efficient_backward,
}
