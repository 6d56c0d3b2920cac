"""Elements of an output whose value nothing promises: which of several writes wins, what NaN is as an integer.

CPU and GPU answer differently, and neither is wrong; these elements are not compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from audit.replay.inputs import Bound
from audit.replay.overload import base_of, named_arguments
from audit.replay.tally import same_elements
from audit.schema import Case

#: From the arguments by name and the CPU's result to a mask of that result; it has nothing to say for None.
_Finder: TypeAlias = Callable[[Mapping[str, Any], torch.Tensor], "torch.Tensor | None"]

SEVERAL_WRITES = "several different values are written to one place, and which one stays is not defined"
EQUALLY_OFTEN = "several values stand equally often, and any of them is the mode"
NO_INTEGER = "NaN, Inf and numbers beyond the range of an integer have no defined integer"


def undetermined(case: Case, bound: Bound, result: torch.Tensor) -> tuple[torch.Tensor | None, str]:
    """Mask over ``result``, what the CPU gave for the call, and the reason; (None, "") where all is determined.

    ``bound`` is the call after it ran; only arguments that it does not write are looked at.
    """
    found = _FINDERS.get(base_of(case.op))
    if found is None or not result.numel():
        return None, ""
    find, why = found
    mask = find(named_arguments(case.op, bound.args, bound.kwargs), result.detach())
    return (mask, why) if mask is not None and bool(mask.any()) else (None, "")


def _scatter(arguments: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor | None:
    dim, index, source = arguments["dim"], arguments["index"], arguments.get("src")
    if source is None or arguments.get("reduce") is not None or not index.dim() or not index.numel():
        return None
    written = source[tuple(slice(0, size) for size in index.shape)]
    lost = _lost(result.gather(dim, index), written)
    return torch.zeros(result.shape, dtype=torch.int32).scatter_add(dim, index, lost) > 0


def _index_copy(arguments: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor | None:
    dim, index = arguments["dim"], arguments["index"]
    if not result.dim():
        return None
    lost = _lost(result.index_select(dim, index), arguments["source"])
    return torch.zeros(result.shape, dtype=torch.int32).index_add(dim, index, lost) > 0


def _index_put(arguments: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor | None:
    if arguments.get("accumulate"):
        return None
    indices, zeros = arguments["indices"], torch.zeros(result.shape, dtype=torch.int32)
    lost = _lost(torch.ops.aten.index.Tensor(result, indices), arguments["values"])
    n_lost: torch.Tensor = torch.ops.aten.index_put.default(zeros, indices, lost, True)
    return n_lost > 0


def _put(arguments: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor | None:
    index = arguments["index"]
    if arguments.get("accumulate") or not index.numel():
        return None
    lost = _lost(result.take(index), arguments["source"].reshape(index.shape))
    return torch.zeros(result.shape, dtype=torch.int32).put(index, lost, accumulate=True) > 0


def _lost(standing: torch.Tensor, written: torch.Tensor) -> torch.Tensor:
    """1 for each write whose value does not stand where it went, 0 for the others."""
    return (~same_elements(standing, written.detach().expand(standing.shape))).to(torch.int32)


def _cast(arguments: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor | None:
    source = arguments.get("src", arguments.get("self"))
    if not isinstance(source, torch.Tensor) or not source.dtype.is_floating_point:
        return None
    if result.dtype == torch.bool or result.dtype.is_floating_point or result.dtype.is_complex:
        return None
    limits = torch.iinfo(result.dtype)
    wide = source.detach().to(torch.float64)
    return ~((wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)).expand(result.shape)


#: Pairs of elements that are looked at, at most, to see which values stand equally often.
_MAX_PAIRS = 1 << 26


def _mode(arguments: Mapping[str, Any], result: torch.Tensor) -> torch.Tensor | None:
    source, dim = arguments["self"].detach(), arguments.get("dim", -1)
    if not source.dim() or source.numel() * source.size(dim) > _MAX_PAIRS:
        return None
    rows = source.movedim(dim, -1)
    counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1)
    most = counts.amax(-1, keepdim=True)
    tied: torch.Tensor = (counts == most).sum(-1, keepdim=True) > most
    tied = tied.movedim(-1, dim) if arguments.get("keepdim") is True else tied.squeeze(-1)
    return tied.expand(result.shape)


_FINDERS: dict[str, tuple[_Finder, str]] = {
    "scatter": (_scatter, SEVERAL_WRITES),
    "index_copy": (_index_copy, SEVERAL_WRITES),
    "index_put": (_index_put, SEVERAL_WRITES),
    "_index_put_impl": (_index_put, SEVERAL_WRITES),
    "_unsafe_index_put": (_index_put, SEVERAL_WRITES),
    "put": (_put, SEVERAL_WRITES),
    "_to_copy": (_cast, NO_INTEGER),
    "copy": (_cast, NO_INTEGER),
    "mode": (_mode, EQUALLY_OFTEN),
}
