"""How the elements of an index or mask lie to each other: repetitions, order, triangles, padding, blocks.

Worked out without waiting for a GPU: every answer is a number on the tensor's own device, read when it is done. So no
Python number is made a tensor there (as ``where`` and ``new_tensor`` do), which would copy it and wait.
"""

from __future__ import annotations

import dataclasses
from typing import cast, get_args

import torch

from audit.schema import Order, Pattern, Values

#: Integers beyond these are not looked at: sorting them costs milliseconds.
INTEGERS_LOOKED_AT = 1 << 16
#: Elements of a mask that are looked at, in its last rows.
MASK_LOOKED_AT = 1 << 22

_ORDERS: tuple[Order, ...] = get_args(Order)
_PATTERNS: tuple[Pattern, ...] = get_args(Pattern)


def structure_of(raw: torch.Tensor) -> torch.Tensor:
    """Number of elements looked at, of distinct values, of the most frequent one; places of order and pattern: [5].

    ``raw`` is an integer or bool tensor, not empty; for an additive mask pass where it is zero.
    """
    raw = _without_expansion(raw)
    return _of_mask(raw) if raw.dtype == torch.bool else _of_integers(raw)


def with_structure(values: Values, found: torch.Tensor) -> Values:
    """``values`` after one more call was looked at; order and pattern stay where all calls agree."""
    n_structured, n_distinct, most, order, pattern = found.tolist()
    first = values.n_structured == 0
    return dataclasses.replace(
        values,
        n_structured=n_structured,
        n_distinct=max(n_distinct, values.n_distinct or 0),
        max_multiplicity=max(most, values.max_multiplicity or 0),
        order=_ORDERS[order] if first else _common(values.order, _ORDERS[order]),
        pattern=_PATTERNS[pattern] if first or values.pattern == _PATTERNS[pattern] else "",
    )


def _common(a: Order, b: Order) -> Order:
    return a if a == b else "ascending" if {a, b} == {"ascending", "strictly ascending"} else ""


def _without_expansion(raw: torch.Tensor) -> torch.Tensor:
    """Dimensions of stride 0 at size 1: their elements are one and the same."""
    sizes = [1 if step == 0 else size for size, step in zip(raw.size(), raw.stride(), strict=True)]
    return raw.as_strided(sizes, raw.stride())


def _of_integers(raw: torch.Tensor) -> torch.Tensor:
    n_columns = raw.size(-1) if raw.dim() else 1
    looked = _first(raw, INTEGERS_LOOKED_AT).reshape(-1)[:INTEGERS_LOOKED_AT]
    if looked.dtype in (torch.uint16, torch.uint32, torch.uint64):
        looked = looked.to(torch.int64)  # no sorting kernels
    n = looked.numel()
    ordered = looked.sort().values
    place = torch.arange(n, device=raw.device)
    begins = torch.ones(n, dtype=torch.bool, device=raw.device)
    begins[1:] = ordered[1:] != ordered[:-1]
    begun = (place * begins).cummax(0).values
    rows = looked[: n // n_columns * n_columns].reshape(-1, n_columns) if n >= n_columns else looked.reshape(1, -1)
    left, right = rows[:, :-1], rows[:, 1:]
    rises, falls = (left <= right).all(), (left >= right).all()
    order = _chosen(raw, [falls, rises, (left < right).all()], [3, 1, 2]) if rows.size(1) > 1 else begun.new_zeros(())
    return torch.stack([begun.new_zeros(()) + n, begins.sum(), (place - begun).max() + 1, order, begun.new_zeros(())])


def _first(raw: torch.Tensor, n: int) -> torch.Tensor:
    """The first rows of the first dimension that hold ``n`` elements, so that no more is copied."""
    if raw.dim() == 0 or raw.numel() <= n:
        return raw
    return raw[: max(1, -(-n * raw.size(0) // raw.numel()))]


def _of_mask(raw: torch.Tensor) -> torch.Tensor:
    """Rows are the last dimension; triangles and blocks are looked for in the first matrix."""
    zero = torch.zeros((), dtype=torch.int64, device=raw.device)
    if raw.dim() == 0:
        return zero.expand(5).clone()
    matrix = raw.reshape(-1, raw.size(-1)) if raw.dim() < 2 else raw[(0,) * (raw.dim() - 2)]
    whole = matrix.numel() <= MASK_LOOKED_AT
    matrix = matrix[-max(1, MASK_LOOKED_AT // max(matrix.size(1), 1)) :]
    rows = _first(raw, MASK_LOOKED_AT)
    left, right = rows[..., :-1], rows[..., 1:]
    lower = torch.ones_like(matrix).tril(matrix.size(1) - matrix.size(0))
    tests, codes = [(left <= right).all(), (left >= right).all()], ["suffix", "prefix"]
    n_blocks = zero + 1
    if min(matrix.shape) > 1:
        if whole and matrix.size(0) == matrix.size(1):
            block = (~matrix.diagonal(1)).cumsum(0)
            block = torch.cat((block.new_zeros(1), block))
            n_blocks = block[-1] + 1
            tests.append((matrix == (block[:, None] == block)).all() & (n_blocks > 1) & (n_blocks < block.numel()))
            codes.append("block")
        tests += [(matrix == ~lower).all(), (matrix == lower).all()]
        codes += ["upper", "lower"]
    pattern = _chosen(raw, tests, [_PATTERNS.index(cast(Pattern, code)) for code in codes])
    is_block = pattern == _PATTERNS.index("block")
    return torch.stack([zero + rows.numel(), 2 + is_block * (n_blocks - 2), zero + 1, zero, pattern])


def _chosen(raw: torch.Tensor, tests: list[torch.Tensor], codes: list[int]) -> torch.Tensor:
    """The code of the last test that holds, 0 where none does."""
    chosen = torch.zeros((), dtype=torch.int64, device=raw.device)
    for test, code in zip(tests, codes, strict=True):
        chosen = chosen * ~test + test * code
    return chosen
