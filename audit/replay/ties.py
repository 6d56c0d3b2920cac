"""Index outputs where several answers are right: equal values may be picked in any order (topk, argmax, pooling)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from audit.replay.inputs import Bound
from audit.replay.overload import named_arguments
from audit.schema import Case

#: Op -> (name of its index output, whether the indices along the dimension must all differ).
_ALONG_DIM = {
    "topk": ("indices", True),
    "sort": ("indices", True),
    "argsort": ("output", True),
    "max": ("indices", False),
    "min": ("indices", False),
    "argmax": ("output", False),
    "argmin": ("output", False),
    "median": ("indices", False),
    "nanmedian": ("indices", False),
    "kthvalue": ("indices", False),
    "mode": ("indices", False),
    "cummax": ("indices", False),
    "cummin": ("indices", False),
}
#: Pooling ops: their index output counts within this many trailing dimensions.
_POOLED_DIMS = {
    "max_pool2d_with_indices": 2,
    "adaptive_max_pool2d": 2,
    "max_pool3d_with_indices": 3,
    "adaptive_max_pool3d": 3,
}


@dataclass(frozen=True)
class Tie:
    """What the indices of one output point into: ``source`` along ``dim``; None counts in the flattened tensor."""

    source: torch.Tensor
    dim: int | None
    form: Literal["same rank", "reduced", "pooled"]
    distinct: bool = False


def tie_of(case: Case, output: str, bound: Bound) -> Tie | None:
    """The tie rule for ``output``, or None where indices must match exactly (as in a stable sort)."""
    base = case.op.split("::")[-1].split(".")[0]
    source = bound.operands[0] if bound.operands else None
    if source is None:
        return None
    if base in _POOLED_DIMS and output == "output 1":
        return Tie(source.flatten(-_POOLED_DIMS[base]), -1, "pooled")
    if base not in _ALONG_DIM or _ALONG_DIM[base][0] != output or source.dim() == 0:
        return None
    arguments = named_arguments(case.op, bound.args, bound.kwargs)
    if arguments.get("stable") is True:
        return None
    dim = arguments.get("dim", -1)
    keeps_rank = base in ("topk", "sort", "argsort", "cummax", "cummin") or arguments.get("keepdim") is True
    return Tie(source, dim, "same rank" if keeps_rank else "reduced", _ALONG_DIM[base][1])


def really_different(tie: Tie, actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Mask of the elements where ``actual`` is wrong: out of range, repeated, or it points at another value."""
    if torch.equal(actual, expected):
        return torch.zeros_like(actual, dtype=torch.bool)
    source, dim = (tie.source.flatten(), 0) if tie.dim is None else (tie.source, tie.dim)
    shaped = _to_source_rank(tie, actual, source, dim), _to_source_rank(tie, expected, source, dim)
    in_range = (shaped[0] >= 0) & (shaped[0] < source.shape[dim])
    picked = source.gather(dim, torch.where(in_range, shaped[0], 0))
    wanted = source.gather(dim, shaped[1])
    same = (picked == wanted) | ((picked != picked) & (wanted != wanted))
    wrong = ~(same & in_range)
    if tie.distinct:
        ordered, order = shaped[0].sort(dim=dim, stable=True)
        repeated = torch.zeros_like(wrong)
        n = ordered.shape[dim]
        repeated.narrow(dim, 1, n - 1).copy_(ordered.narrow(dim, 1, n - 1) == ordered.narrow(dim, 0, n - 1))
        wrong |= torch.zeros_like(wrong).scatter(dim, order, repeated)
    return wrong.reshape(actual.shape)


def _to_source_rank(tie: Tie, index: torch.Tensor, source: torch.Tensor, dim: int) -> torch.Tensor:
    if tie.form == "pooled":
        return index.reshape(*source.shape[:-1], -1)
    if tie.dim is None:
        return index.reshape(-1)
    return index.unsqueeze(dim) if tie.form == "reduced" else index
