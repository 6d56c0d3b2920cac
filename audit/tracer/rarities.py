"""What is rare about the values of a call, and decides which of several alike calls is replayed.

A fault that fires on an empty row, a feature without variance, a fully masked query or a NaN meets none of them in
ordinary data. A GPU is never waited for; on the CPU what is ordinary is told early, since looks are many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

#: A call is kept for its magnitude where that is more than so many times another's, else for its rarities.
LIKE_MAGNITUDE = 16.0

#: Tensors of more elements are not looked at: it takes some passes.
ELEMENTS_LOOKED_AT = 1 << 22
#: Single numbers are looked for in so many evenly spaced elements, and integers beyond these not sorted.
_SAMPLED = 1 << 14
#: NaN and Inf beyond this share are no rarity: behind a whole tensor of them nothing else is seen.
_RARE_SHARE = 1 / 16


@dataclass(frozen=True)
class Worth:
    """What makes a call worth keeping: ``magnitude`` of its numbers, ``largest`` of all, its indices too."""

    magnitude: float = -1.0
    n_rarities: int = 0
    largest: float = 0.0

    def surpasses(self, other: Worth) -> bool:
        low, high = sorted((self.magnitude, other.magnitude))
        if high > LIKE_MAGNITUDE * low:
            return self.magnitude > other.magnitude
        own, others = ((w.n_rarities, w.magnitude, w.largest) for w in (self, other))
        return own > others


def rarities_of(raw: torch.Tensor, extremes: torch.Tensor, elementwise: bool) -> torch.Tensor:
    """How many of the rarities below ``raw`` has, an integer [] on its device; 0 for a tensor that is not looked at.

    ``extremes``: its smallest and largest value. ``elementwise``: of an op each of whose results comes from one place
    of its operands, so that NaN and Inf hide nothing.
    """
    if not 1 < raw.numel() <= ELEMENTS_LOOKED_AT:
        return extremes.new_zeros((), dtype=torch.int64)
    x = _comparable(raw)
    found = [~(extremes[0] >= 0), ~(extremes[1] <= 0)]  # so that NaN, of which nothing is told, does not take away
    for dims in _slices(x):
        found += _uniform(x, extremes, dims)
    flat = x.reshape(-1)
    picked = flat[:: max(1, flat.numel() // _SAMPLED)]
    if raw.is_floating_point() or raw.is_complex():
        found += _small(picked, raw.dtype)
        if elementwise:
            found += _not_finite(picked, extremes)
    elif raw.dtype != torch.bool and flat.numel() <= _SAMPLED:
        ordered = flat.sort().values
        found.append((ordered[1:] == ordered[:-1]).any())
    return torch.stack(found).sum()


def _comparable(raw: torch.Tensor) -> torch.Tensor:
    """The values in a dtype that has the kernels; of complex numbers the real and imaginary parts side by side."""
    if raw.is_complex():
        raw = torch.view_as_real(raw).flatten(-2)
    if raw.dtype is torch.bool:
        return raw.view(torch.uint8)
    narrow = raw.dtype.itemsize == 1 and raw.is_floating_point()
    return raw.float() if narrow or raw.dtype in (torch.uint16, torch.uint32, torch.uint64) else raw


def _slices(x: torch.Tensor) -> Iterator[list[int]]:
    """The dimensions of a row, and of a feature: the last of two dimensions, else the second, as in images."""
    features = [d for d in range(x.dim()) if d != 1] if x.dim() > 1 else []
    return (dims for dims in ([-1], features) if any(x.size(d) > 1 for d in dims))


def _uniform(x: torch.Tensor, extremes: torch.Tensor, dims: list[int]) -> list[torch.Tensor]:
    """Whether some slice is all zero, all of the least value, all of the largest, all of another one."""
    low = x.amin(dims)
    same = low == x.amax(dims)
    if _told_absent(same):
        return []
    zero, least, most = low == 0, low == extremes[0], low == extremes[1]
    return [(same & value).any() for value in (zero, least, most, ~(zero | least | most))]


def _small(picked: torch.Tensor, dtype: torch.dtype) -> list[torch.Tensor]:
    """Whether there are -0.0 and subnormal numbers."""
    small = picked.abs() < torch.finfo(dtype).smallest_normal
    if _told_absent(small):
        return []
    zero = picked == 0
    return [(zero & torch.signbit(picked)).any(), (small & ~zero).any()]


def _not_finite(picked: torch.Tensor, extremes: torch.Tensor) -> list[torch.Tensor]:
    """Whether there are NaN, Inf and -Inf, and few."""
    if _told_absent(~extremes.isfinite()):
        return []
    odds = (picked.isnan(), picked == torch.inf, picked == -torch.inf)
    return [odd.any() & (odd.float().mean() < _RARE_SHARE) for odd in odds]


def _told_absent(mask: torch.Tensor) -> bool:
    """Whether ``mask`` is known to be false everywhere; nothing is known without waiting for a GPU."""
    return not mask.is_cuda and not bool(mask.any())
