"""Attention with dropout: its mean is that without, and how far each row strays from it is known."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from audit.comparison import ChanceTest, Distribution
from audit.replay.chances import of_z

#: More probabilities than these are not computed again.
_MOST = 1 << 24
#: Rows from which on the spread of all says that nothing was dropped.
_LEAST_ROWS = 256
#: Of the expected variance: less is no dropout.
_NO_SPREAD = 0.05


def attention_dropout(
    output: str, outputs: Mapping[str, torch.Tensor], arguments: Mapping[str, Any]
) -> Distribution | None:
    """Each row along the row that it has without dropout: by what it is longer or shorter, in its own deviations."""
    p, query, value = arguments.get("dropout_p"), arguments["query"], arguments["value"]
    out = outputs[output]
    if output != next(iter(outputs)) or not isinstance(p, float) or not 0 < p < 1 or query.dim() != 4:
        return None
    if out.shape != (*query.shape[:-1], value.shape[-1]):
        return None
    if query.shape[1] * query.shape[2] * query.shape[0] * value.shape[2] > _MOST:
        return None
    probabilities, wide = _probabilities(arguments), _heads(value, query.shape[1])
    mean = probabilities @ wide
    along = wide @ mean.mT  # [..., keys, queries]: each value along each query's row
    variance = p / (1 - p) * (probabilities.square() * along.mT.square()).sum(-1)
    off = ((out.double() - mean) * mean).sum(-1)
    rows = torch.isfinite(off) & torch.isfinite(variance) & (variance > 0)
    n = int(rows.sum())
    if not n:
        return None
    tests = [of_z("mean", float(off[rows].sum()) / math.sqrt(float(variance[rows].sum())))]
    spread = float((off[rows].square() / variance[rows]).mean())
    if n >= _LEAST_ROWS and spread < _NO_SPREAD:
        tests.append(ChanceTest("variance", -300.0, spread))
    return Distribution(f"attention with dropout({p:g})", n, 0, tuple(tests))


def _heads(x: torch.Tensor, n: int) -> torch.Tensor:
    wide = x.detach().double()
    return wide if x.shape[1] == n else wide.repeat_interleave(n // x.shape[1], 1)


def _probabilities(arguments: Mapping[str, Any]) -> torch.Tensor:
    """Without dropout, in double precision; 0 in rows that may look at nothing."""
    query, scale = arguments["query"].detach().double(), arguments.get("scale")
    key = _heads(arguments["key"], query.shape[1])
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    mask = arguments.get("attn_mask", arguments.get("attn_bias"))
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.double()
    if arguments.get("is_causal"):
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:], dtype=torch.bool).tril(), -math.inf)
    return torch.nan_to_num(torch.softmax(scores, -1), nan=0.0)
