"""The anatomy of an output that is off: where its wrong elements sit, and how far from the reference in ULP.

Measured in a pass of its own, so that an output that is right costs nothing.
"""

from __future__ import annotations

import dataclasses

import torch

from audit.comparison import Comparison, TensorFact
from audit.replay.pattern import PlaceTally
from audit.replay.ulp import has_ulp, histogram, ulp_distance

#: Elements whose error ratio is above this are placed: what the rules allow by default. A rule that allows less still
#: learns where the worst are.
PLACED_ABOVE = 8.0


def is_off(result: Comparison) -> bool:
    """Whether a measured output deserves a closer look."""
    return result.worst_ratio > PLACED_ABOVE or result.n_nan_mismatch > 0 or result.n_inf_mismatch > 0


class Anatomy:
    """Gathers an output block by block. ``fact`` is the device's; ``places``, the flat index of each element that was
    looked at, where these are a part of the output."""

    def __init__(self, fact: TensorFact, places: torch.Tensor | None = None) -> None:
        self._dtype: torch.dtype = getattr(torch, fact.dtype)
        self._tally = PlaceTally(fact.sizes, fact.strides)
        self._places = places
        self._counts = [0] * 64
        self._at = places
        self._next = 0
        self._n = 0

    def move_to(self, at: int | torch.Tensor) -> None:
        """The flat index of the element that the next block begins with, or those of all its elements."""
        self._next, self._at = (at, None) if isinstance(at, int) else (0, at)

    def add(self, wrong: torch.Tensor, actual: torch.Tensor, expected: torch.Tensor) -> None:
        """The next block: the mask of wrong elements, the device's and the reference's values, all flat."""
        flat = wrong.nonzero().flatten() + self._next
        self._next += wrong.numel()
        self._n += wrong.numel()
        self._tally.add(flat if self._at is None else self._at[flat])
        if has_ulp(self._dtype):
            self._count(actual, expected)

    def _count(self, actual: torch.Tensor, expected: torch.Tensor) -> None:
        actual, expected = actual.to(self._dtype), expected.to(self._dtype)  # fp8 is compared as float32
        finite = _finite(actual) & _finite(expected)
        found = histogram(ulp_distance(actual, expected)[finite])
        self._counts = [mine + more for mine, more in zip(self._counts, found, strict=True)]

    def told(self, result: Comparison, n_seen: int | None = None) -> Comparison:
        """``result`` with what was gathered, of the elements that were added or of ``n_seen``."""
        counts = self._counts
        n = max((place + 1 for place, count in enumerate(counts) if count), default=0)
        return dataclasses.replace(
            result,
            ulp_counts=tuple(counts[:n]),
            wrong=self._tally.places(self._n if n_seen is None else n_seen, self._places),
        )


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """By component, as ``ulp_distance`` counts them."""
    if tensor.dtype.is_complex:
        return torch.isfinite(torch.view_as_real(tensor))
    return torch.isfinite(tensor.to(torch.float32) if tensor.dtype.itemsize == 1 else tensor)


def wrong_elements(
    actual: torch.Tensor, wide: torch.Tensor, same: torch.Tensor | None, noise: float | torch.Tensor, eps: float
) -> torch.Tensor:
    """Mask of a block: ratio beyond ``PLACED_ABOVE``, or NaN or Inf where neither the fp64 value nor the CPU has it."""
    double = torch.complex128 if actual.dtype.is_complex else torch.float64
    rounded = wide.to(actual.dtype)
    cpu = rounded if same is None else same
    reference = wide.to(double)
    error, floor = (actual.to(double) - reference).abs(), reference.abs() * eps + noise
    finite = torch.isfinite(actual) & torch.isfinite(rounded)
    as_either = _as(actual, rounded) | _as(actual, cpu) | beside_overflow(actual, wide, noise, eps)
    return torch.where(finite, error > PLACED_ABOVE * floor, ~as_either)


def beside_overflow(actual: torch.Tensor, wide: torch.Tensor, noise: float | torch.Tensor, eps: float) -> torch.Tensor:
    """Where the device has Inf for a number that rounding may carry over the largest one of the dtype, or has one that
    rounding may keep below where the reference is Inf: at the edge of float16, which scaled losses seek, either is
    right. Inf counts as the least number that is rounded to it."""
    if not actual.dtype.is_floating_point or actual.dtype.itemsize > 4:
        return torch.zeros_like(actual, dtype=torch.bool)
    info = torch.finfo(actual.dtype)
    reference = wide.to(torch.float64)
    given = actual.to(torch.float64).clamp(-info.max * (1 + info.eps / 4), info.max * (1 + info.eps / 4))
    return torch.isfinite(reference) & ((given - reference).abs() <= PLACED_ABOVE * (reference.abs() * eps + noise))


def _as(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Where ``actual`` is no number in the way that ``expected`` is none, or both are finite."""
    if actual.dtype.is_complex:
        same_inf = torch.isinf(actual) == torch.isinf(expected)
    else:
        same_inf = torch.where(torch.isinf(actual), actual, 0.0) == torch.where(torch.isinf(expected), expected, 0.0)
    return same_inf & (torch.isnan(actual) == torch.isnan(expected))
