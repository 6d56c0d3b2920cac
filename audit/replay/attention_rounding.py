"""What fused attention in half precision rounds on its way to the gradients of query and key.

A row with one probability near 1 has a small gradient, p (dp - delta), in which delta, the sum of the output times its
gradient, all but cancels dp. Kernels take delta from the output that their forward has left in half precision, and
round the gradients of the scores before they are multiplied again (AOTriton's ``bwd_preprocess`` and ``bwd_inner_dq``,
FlashAttention-2 likewise): what is left of such a row may be mostly that rounding, in all of its elements alike. One
run on the CPU shows it by chance only; here is its deviation.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from audit.replay.inputs import Bound
from audit.replay.noise import LOW_PRECISION
from audit.replay.overload import base_of, named_arguments
from audit.replay.sampled.attention import Attention, Head, Precision, Rows, all_rows, incoming, output, scored
from audit.replay.sampled.attention_calls import ATTENTIONS, attention_of, gradient_names
from audit.schema import Case

_SINGLE = Precision(torch.float32)


@torch.no_grad()
def attention_rounding(case: Case, bound: Bound) -> Mapping[str, Tensor]:
    """The deviation of each element of the gradients of query and key, flat, by the names that the call gives them."""
    base = base_of(case.op)
    if base not in ATTENTIONS:
        return {}
    arguments = named_arguments(case.op, bound.args, bound.kwargs)
    attention = attention_of(base, arguments, bound)
    if attention is None or attention.gradient is None or attention.query.dtype not in LOW_PRECISION:
        return {}
    names = gradient_names(base, arguments, bound)
    by_query, by_key = _variances(attention)
    found = {names.get("query"): by_query, names.get("key"): by_key}
    return {name: torch.nan_to_num(v, nan=0.0).sqrt_().flatten() for name, v in found.items() if name is not None}


def _variances(attention: Attention) -> tuple[Tensor, Tensor]:
    by_query = torch.zeros(attention.query.shape)
    by_key = torch.zeros(attention.key.shape)
    for batch, key_head in attention.pairs():
        head = Head.of(attention, batch, key_head, _SINGLE)
        for rows in all_rows(attention, batch, key_head):
            of_rows, of_keys = _of_rows(attention, head, rows)
            by_query[batch, rows.heads, rows.positions] = of_rows
            by_key[batch, key_head] += of_keys
    return by_query, by_key


def _of_rows(attention: Attention, head: Head, rows: Rows) -> tuple[Tensor, Tensor]:
    """Variances of these rows of the query's gradient, and what they add to those of the keys'."""
    dtype = attention.query.dtype
    found = scored(attention, head, rows, _SINGLE)
    p, gradient = found.probability, incoming(attention, rows, _SINGLE)
    result = output(head, found, _SINGLE)
    delta = (result * gradient).sum(-1, keepdim=True)
    of_result = _rounding(result, dtype) + _rounding(p, dtype) @ head.value.square()
    of_delta = (of_result * gradient.square()).sum(-1, keepdim=True)
    of_scores = _rounding(p * (gradient @ head.value.t() - delta), dtype)
    # delta is one number for the whole row: what it is off by, all of the row's terms are off by together
    of_query = (p @ head.key).square() * of_delta + of_scores @ head.key.square()
    of_keys = (of_scores + p.square() * of_delta).t() @ rows.of(attention.query).float().square()
    return of_query * attention.scale**2, of_keys * attention.scale**2


def _rounding(x: Tensor, dtype: torch.dtype) -> Tensor:
    """The variance of one rounding to ``dtype``, of subnormal numbers too; zeros have none."""
    info = torch.finfo(dtype)
    return (x.abs().clamp_min(info.smallest_normal) * info.eps).square_().div_(12).masked_fill_(x == 0, 0.0)
