"""Calls of attention, with or without its gradients, and what is expected of each output."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from torch import Tensor

from audit.codec import contiguous_strides
from audit.comparison import TensorFact
from audit.replay.compare import Expected
from audit.replay.inputs import Bound
from audit.replay.sampled.attention import Attention, forward_parts, key_gradient_parts, query_gradient_parts
from audit.replay.sampled.exact import Exact, ExactParts
from audit.replay.stream import Stream

_COMPOSITE = "scaled_dot_product_attention"
_KERNELS = ("flash", "efficient", "cudnn")
ATTENTIONS = frozenset(
    (_COMPOSITE, *(f"_scaled_dot_product_{k}_attention{end}" for k in _KERNELS for end in ("", "_backward")))
)


def attention_of(base: str, a: Mapping[str, Any], bound: Bound) -> Attention | None:
    """The attention that a call with these arguments by name computes; None where it is of another kind."""
    query, key, value = (_four(a[name]) for name in ("query", "key", "value"))
    gradient = a.get("grad_out", a.get("grad_out_", bound.grads[0] if bound.grads else None))
    bias = a.get("attn_mask", a.get("attn_bias"))
    if query is None or key is None or value is None or not query.numel() or not key.numel():
        return None
    if query.shape[0] != key.shape[0] or key.shape[:3] != value.shape[:3] or query.shape[1] % key.shape[1]:
        return None
    if len({query.dtype, key.dtype, value.dtype}) > 1 or not query.is_floating_point():
        return None
    if bias is not None:
        bias = _expanded(bias, (*query.shape[:3], key.shape[2]), a["query"].dim())
        if bias is None:
            return None
    scale = a["scale"] if a.get("scale") is not None else 1 / math.sqrt(query.shape[3])
    incoming = None if gradient is None else _four(gradient.detach())
    return Attention(query, key, value, bias, bool(a["is_causal"]), float(scale), incoming)


def _four(tensor: Tensor) -> Tensor | None:
    """[batch, heads, length, width]; without heads there is one."""
    if tensor.dim() == 3:
        return tensor.unsqueeze(1)
    return tensor if tensor.dim() == 4 else None


def _expanded(bias: Tensor, sizes: tuple[int, ...], dims: int) -> Tensor | None:
    bias = bias.unsqueeze(1) if bias.dim() == 3 and dims == 3 else bias
    try:
        return bias.expand(sizes)
    except RuntimeError:
        return None


def expected_of(
    base: str, a: Mapping[str, Any], bound: Bound, attention: Attention, stream: Stream
) -> dict[str, Expected]:
    """By the names that the call gives its outputs. Strides are the device's own affair."""
    finite, query = attention.is_finite, a["query"]
    found: dict[str, Expected] = {}

    def put(name: str, exact: Exact, sizes: tuple[int, ...]) -> None:
        fact = TensorFact(sizes, contiguous_strides(sizes), str(exact.own.dtype).removeprefix("torch."))
        found[name] = Expected(name, fact, "numeric", sampled=ExactParts(exact, finite), facts_known=False)

    if not base.endswith("_backward"):
        result, sums = forward_parts(attention, query.dtype, stream)
        put("output", result, (*query.shape[:-1], a["value"].shape[-1]))
        if base != _COMPOSITE and a.get("compute_log_sumexp", True):
            put("log_sumexp" if "efficient" in base else "logsumexp", sums, tuple(attention.query.shape[:3]))
    names = gradient_names(base, a, bound) if attention.gradient is not None else {}
    if "query" in names:
        put(names["query"], query_gradient_parts(attention, query.dtype, stream), tuple(query.shape))
    if "key" in names or "value" in names:
        for name, exact in zip(("key", "value"), key_gradient_parts(attention, query.dtype, stream), strict=True):
            if name in names:
                put(names[name], exact, tuple(a[name].shape))
    return found


def gradient_names(base: str, a: Mapping[str, Any], bound: Bound) -> dict[str, str]:
    """What the gradients of query, key and value are called, as far as they are wanted."""
    arguments = ("query", "key", "value")
    if base == _COMPOSITE:
        positions = {id(operand): position for position, operand in enumerate(bound.operands) if operand.requires_grad}
        return {n: f"gradient of operand {positions[id(a[n])]}" for n in arguments if id(a[n]) in positions}
    if "efficient" in base:
        return {n: f"output {i}" for i, n in enumerate(arguments) if a["grad_input_mask"][i]}
    if "cudnn" in base:
        return {n: f"output {i}" for i, n in enumerate(arguments)}
    return {n: f"grad_{n}" for n in arguments}


def is_covered(base: str, a: Mapping[str, Any]) -> bool:
    """Whether every output that matters is one of these: the gradient of a bias is not."""
    bias = a.get("attn_mask", a.get("attn_bias"))
    if base == _COMPOSITE:
        return bias is None or not bias.requires_grad
    return "efficient" not in base or not base.endswith("_backward") or not a["grad_input_mask"][3]
