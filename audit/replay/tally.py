"""Running totals of an output's errors, added up block by block; every field as in ``audit.comparison.Comparison``."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from audit.replay.anatomy import beside_overflow

#: ratio_counts has at most this many entries (2**63 is beyond any threshold).
_MAX_POWER = 64


def widened(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.dtype.is_complex else torch.float64)


def same_elements(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Mask of equal elements; every NaN equals every NaN, and -0.0 equals 0.0."""
    equal = a == b
    if a.dtype.is_floating_point or a.dtype.is_complex:
        equal |= torch.isnan(a) & torch.isnan(b)
    return equal


@dataclass
class Tally:
    """Running totals over blocks."""

    n_different: int = 0
    n_nan_mismatch: int = 0
    n_inf_mismatch: int = 0
    max_abs_error: float = 0.0
    squares: float = 0.0
    n_finite: int = 0
    worst_ratio: float = 0.0
    worst: int | None = None
    first_mismatch: int | None = None
    counts: list[int] = field(default_factory=lambda: [0] * _MAX_POWER)


def add_block(
    tally: Tally,
    start: int,
    actual: torch.Tensor,
    wide: torch.Tensor,
    same: torch.Tensor | None,
    noise: float | torch.Tensor,
    eps: float,
) -> None:
    if _all_finite(actual, wide, same):
        _add_finite_block(tally, start, actual, wide, same, noise, eps)
        return
    rounded = wide.to(actual.dtype)  # a finite fp64 value may be Inf in the output's dtype, and rightly so
    cpu = rounded if same is None else same
    tally.n_different += int((~same_elements(actual, cpu)).sum())
    nan_mismatch = _agrees_with_neither(torch.isnan(actual), torch.isnan(rounded), torch.isnan(cpu))
    inf_mismatch = _inf_mismatch(actual, rounded, cpu) & ~nan_mismatch
    inf_mismatch &= ~beside_overflow(actual, wide, noise, eps)
    mismatch = nan_mismatch | inf_mismatch
    tally.n_nan_mismatch += int(nan_mismatch.sum())
    tally.n_inf_mismatch += int(inf_mismatch.sum())
    if tally.first_mismatch is None and bool(mismatch.any()):
        tally.first_mismatch = start + int(mismatch.nonzero()[0])
    finite = torch.isfinite(actual) & torch.isfinite(rounded)
    magnitude = torch.where(finite, widened(wide).abs(), 0.0)
    error = torch.where(finite, (widened(actual) - widened(wide)).abs(), 0.0)
    tally.n_finite += int(finite.sum())
    _add_errors(tally, start, error, magnitude.mul_(eps).add_(noise))


def _all_finite(actual: torch.Tensor, wide: torch.Tensor, same: torch.Tensor | None) -> bool:
    """One pass a tensor; the slow way tells what is where. An fp64 value that overflows the dtype is not finite."""
    if actual.dtype.is_complex:
        return False
    limit = torch.finfo(actual.dtype).max if actual.dtype.is_floating_point else math.inf
    for tensor in (actual, wide, wide if same is None else same):
        low, high = torch.aminmax(tensor)
        if not (-limit <= float(low) and float(high) <= limit):  # false for NaN
            return False
    return True


def _add_finite_block(
    tally: Tally,
    start: int,
    actual: torch.Tensor,
    wide: torch.Tensor,
    same: torch.Tensor | None,
    noise: float | torch.Tensor,
    eps: float,
) -> None:
    """``_add_block`` for the usual case, in a third of the passes."""
    cpu = wide.to(actual.dtype) if same is None else same
    tally.n_different += int((actual != cpu).sum())
    tally.n_finite += actual.numel()
    reference = widened(wide)
    error = (widened(actual) - reference).abs_()
    _add_errors(tally, start, error, reference.abs().mul_(eps).add_(noise))


def _add_errors(tally: Tally, start: int, error: torch.Tensor, floor: torch.Tensor) -> None:
    """Adds the errors of a block whose allowance unit, element by element, is ``floor``."""
    ratio = error / floor
    worst = float(ratio.max())
    if math.isnan(worst):  # no error over no allowance
        ratio = torch.where(error > 0, ratio, 0.0)
        worst = float(ratio.max())
    tally.max_abs_error = max(tally.max_abs_error, float(error.max()))
    tally.squares += float(torch.dot(error, error))
    if tally.worst is None or worst > tally.worst_ratio:
        tally.worst_ratio, tally.worst = worst, start + int(ratio.argmax())
    if worst <= 1.0:
        return
    large = ratio[ratio > 1.0]
    for power in range(_MAX_POWER):
        if large.numel() == 0:
            break
        large = large[large > 2.0**power]
        tally.counts[power] += large.numel()


def _agrees_with_neither(actual: torch.Tensor, reference: torch.Tensor, cpu: torch.Tensor) -> torch.Tensor:
    """Where fp64 and the same-dtype CPU run disagree on NaN or Inf (an intermediate overflow), either is accepted."""
    return (actual != reference) & (actual != cpu)


def _inf_mismatch(actual: torch.Tensor, reference: torch.Tensor, cpu: torch.Tensor) -> torch.Tensor:
    if actual.dtype.is_complex:
        return _agrees_with_neither(torch.isinf(actual), torch.isinf(reference), torch.isinf(cpu))
    signs = [torch.where(torch.isinf(t), torch.sign(t), torch.zeros_like(t)) for t in (actual, reference, cpu)]
    return _agrees_with_neither(*signs)
