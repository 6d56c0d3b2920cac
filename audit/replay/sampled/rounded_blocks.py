"""What the roundings of blocks say of the whole output: the places of coarse parts, and averages over all elements."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from audit.comparison import CoarsePart, Comparison
from audit.replay.roundings import RUN, TILE


def moved(parts: Sequence[CoarsePart], rank: int, dim: int, start: int) -> tuple[CoarsePart, ...]:
    """The parts of a block that begins at ``start`` of dimension ``dim``, of an output with ``rank`` dimensions."""

    def place(part: CoarsePart) -> tuple[int, ...]:
        if part.kind == "index":
            return tuple(at + start for at in part.place) if part.dim == dim else part.place
        step = RUN if part.kind == "run" else TILE if part.kind == "tile" and dim >= rank - 2 else 1
        return tuple(at + start // step if d == dim else at for d, at in enumerate(part.place))

    return tuple(dataclasses.replace(part, place=place(part)) for part in parts)


def together(one: Comparison, other: Comparison) -> dict[str, Any]:
    """The fields of a Comparison that tell of roundings, of two parts of an output."""
    n = max(one.n_elements + other.n_elements, 1)

    def mean(name: str) -> float:
        return float(one.n_elements * getattr(one, name) + other.n_elements * getattr(other, name)) / n

    deviation = math.hypot(one.n_elements * one.scale_deviation, other.n_elements * other.scale_deviation) / n
    averaged = ("typical_part", "misrounded_fraction", "scale_error")
    return {
        "rounding": one.rounding or other.rounding,
        "parts": _coarsest(one.parts, other.parts),
        "scale_deviation": deviation,
        **{name: mean(name) for name in averaged},
    }


def _coarsest(one: Sequence[CoarsePart], other: Sequence[CoarsePart]) -> tuple[CoarsePart, ...]:
    """Of each kind and dimension. The whole is coarse if all blocks are."""
    worst: dict[tuple[str, int], CoarsePart] = {}
    for part in (*one, *other):
        known = worst.get((part.kind, part.dim))
        if part.kind != "whole" and (known is None or part.ratio > known.ratio):
            worst[part.kind, part.dim] = part
    wholes = [part for part in (*one, *other) if part.kind == "whole"]
    if len(wholes) == 2:
        n = sum(part.n for part in wholes)
        ratio = math.sqrt(sum(part.n * part.ratio**2 for part in wholes) / n)
        worst["whole", 0] = CoarsePart("whole", (), n, ratio)
    return tuple(worst.values())
