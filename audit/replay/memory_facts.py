"""Two runs over differently filled fresh memory: which elements were never written, which did not repeat."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from audit.places import Places
from audit.replay.compare import flat, packed, same_elements, unravel
from audit.replay.pattern import places_of


@dataclass(frozen=True)
class MemoryFacts:
    """Counts over one output, and where these elements sit; ``first_unwritten`` is an index into it."""

    n_unwritten: int = 0
    first_unwritten: tuple[int, ...] = ()
    n_not_repeated: int = 0
    unwritten: Places | None = None
    not_repeated: Places | None = None


def memory_facts(
    first: torch.Tensor, second: torch.Tensor, fills: tuple[int, int], written: bool, repeats: bool
) -> MemoryFacts:
    """``first`` and ``second`` are host copies of one output, from runs over memory filled with ``fills``.

    ``written`` and ``repeats``: whether the output must be. An element equal to the fill in both runs was not written,
    since the fills differ in every bit; NaN equals NaN when asking whether it repeated.
    """
    if first.shape != second.shape or first.dtype != second.dtype:
        return MemoryFacts(n_not_repeated=max(first.numel(), second.numel()) if repeats else 0)
    a, b = _bits(first), _bits(second)
    if torch.equal(a, b):
        return MemoryFacts()
    unwritten = (a == fills[0]).all(1) & (b == fills[1]).all(1)
    n_unwritten = int(unwritten.sum())
    changed = ~same_elements(flat(first), flat(second)) & ~unwritten
    return MemoryFacts(
        n_unwritten=n_unwritten if written else 0,
        first_unwritten=unravel(int(unwritten.nonzero()[0]), tuple(first.shape)) if written and n_unwritten else (),
        n_not_repeated=int(changed.sum()) if repeats else 0,
        unwritten=_where(unwritten, first) if written and n_unwritten else None,
        not_repeated=_where(changed, first) if repeats else None,
    )


def _where(mask: torch.Tensor, output: torch.Tensor) -> Places | None:
    """``mask`` is flat, in logical order."""
    return places_of(mask.reshape(output.shape), tuple(output.stride()))


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Elements by bytes, [elements, itemsize] uint8, in logical order."""
    plain = packed(tensor.detach().resolve_conj().resolve_neg())
    return plain.view(torch.uint8).reshape(plain.numel(), plain.element_size())
