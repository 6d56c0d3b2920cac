"""Whether each part of a narrow output is as exact as one rounding makes it: a row, a tile, one index of a dimension.

In half precision the allowance of a single element, eight steps, is up to 6 % of its value. Over sixteen elements and
more a correct result is far closer: its rms error is that of one rounding, a step over the root of 12, or a few times
that where a library rounds parts of its sums. What a kernel gets wrong in one tile, row or head by two per cent shows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from audit.comparison import CoarsePart, PartKind, Rounding
from audit.replay.ulp import spacing_above_one

#: Parts with a smaller rms error, in that of one rounding, are not told.
TOLD_ABOVE = 4.0
#: Fewer elements are no part.
LEAST_ELEMENTS = 16
TILE = 16
#: Elements of a vector in one part.
RUN = 64
#: Elements looked at in one go.
_BLOCK = 1 << 20
#: Of more elements the parts are not told: three numbers in double precision for each take too much memory.
_MOST = 1 << 25
#: A quiet part may be as noisy as so much of the variance that an element has on average: intermediate results do not
#: grow small with it where terms cancel.
_QUIET = {"one operation": 0.0, "once": 0.0, "elementwise": 0.25, "mostly once": 1.0, "": 1.0}


@dataclass(frozen=True)
class Roundings:
    """The worst part of each kind, the typical part's ratio, the share that is not rounded to the nearest number."""

    parts: tuple[CoarsePart, ...] = ()
    typical: float = 0.0
    misrounded_fraction: float = 0.0
    scale_error: float = 0.0
    scale_deviation: float = 0.0


@dataclass(frozen=True)
class _Sums:
    """Of the parts of one kind: the device's squared errors, the CPU's, the variance of one rounding, and elements."""

    kind: PartKind
    error: torch.Tensor
    own: torch.Tensor
    unit: torch.Tensor
    n: torch.Tensor
    dim: int = 0


def roundings(
    kind: Rounding, sizes: tuple[int, ...], actual: torch.Tensor, wide: torch.Tensor, same: torch.Tensor,
    spread: torch.Tensor | None,
) -> Roundings:  # fmt: skip
    """Of one output; all tensors flat, ``spread`` as ``audit.replay.rounding_kinds`` gives it."""
    misrounded = int((actual != wide.to(actual.dtype)).sum()) / max(actual.numel(), 1)
    if not LEAST_ELEMENTS <= actual.numel() <= _MOST or not _stands_out(actual, wide, spread):
        return Roundings(misrounded_fraction=misrounded)
    squares = [_error(actual, wide).square(), _error(same, wide).square(), _unit(wide, actual.dtype, spread)]
    quiet = float(squares[2].mean()) * _QUIET[kind]
    found = [_worst(sums, quiet) for sums in _parts(*(square.reshape(sizes) for square in squares))]
    ratios = torch.cat([ratio for ratio, _ in found])
    parts = tuple(part for _, part in found if part is not None and part.ratio > TOLD_ABOVE)
    return Roundings(parts, float(ratios.median()), misrounded, *_scale(actual, wide))


def _stands_out(actual: torch.Tensor, wide: torch.Tensor, spread: torch.Tensor | None) -> bool:
    """Whether any element is so far off that a part with it could be: a pass that mostly says no."""
    for start in range(0, actual.numel(), _BLOCK):
        part = slice(start, start + _BLOCK)
        unit = _unit(wide[part], actual.dtype, None if spread is None else spread[part])
        if bool((_error(actual[part], wide[part]).square_() > TOLD_ABOVE**2 * unit).any()):
            return True
    return False


def _scale(actual: torch.Tensor, wide: torch.Tensor) -> tuple[float, float]:
    """By what factor, less one, the output is too large all over (least squares), and the deviation of that."""
    error, x = _error(actual, wide), torch.nan_to_num(wide.double(), nan=0.0, posinf=0.0, neginf=0.0)
    total = float(x.square().sum())
    if not 0.0 < total < math.inf:
        return 0.0, 0.0
    slope = float(torch.dot(error, x)) / total
    return slope, float(((error - slope * x) * x).square().sum()) ** 0.5 / total


def _error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(a.double() - b.double(), nan=0.0, posinf=0.0, neginf=0.0)


def _unit(wide: torch.Tensor, dtype: torch.dtype, spread: torch.Tensor | None) -> torch.Tensor:
    """The variance of one rounding of each element, and of what its inputs' steps change."""
    magnitude = torch.where(torch.isfinite(wide), wide.double().abs(), 0.0)
    _, exponent = torch.frexp(magnitude.clamp_(min=torch.finfo(dtype).smallest_normal))
    half_step = spacing_above_one(dtype) / 2  # frexp: 0.5 <= mantissa < 1
    variance = torch.exp2(exponent.double()).mul_(half_step).square_().div_(12)
    return variance if spread is None else variance.add_(spread.double().square_())


# --- parts -------------------------------------------------------------------------------------------------------


def _parts(*squares: torch.Tensor) -> Iterator[_Sums]:
    """``squares``: the device's, the CPU's, one rounding's, in the shape of the output."""
    sizes = squares[0].shape
    yield _over(squares, tuple(range(len(sizes))), "whole")
    for dim in range(len(sizes)):
        others = tuple(other for other in range(len(sizes)) if other != dim)
        if others and sizes[dim] > 1:
            yield _over(squares, others, "index", dim)
    if len(sizes) == 1:
        yield _over([_padded(x, (0, -sizes[0] % RUN)).reshape(-1, RUN) for x in squares], (1,), "run")
    if len(sizes) > 2:
        yield _over(squares, (len(sizes) - 1,), "row")
    if len(sizes) > 1:
        yield _tiles(squares)


def _over(squares: Sequence[torch.Tensor], dims: tuple[int, ...], kind: PartKind, dim: int = 0) -> _Sums:
    error, own, unit = (x.sum(dims) for x in squares)
    return _Sums(kind, error, own, unit, torch.full_like(error, math.prod(squares[0].shape[d] for d in dims)), dim)


def _padded(x: torch.Tensor, pad: tuple[int, ...]) -> torch.Tensor:
    return torch.nn.functional.pad(x, pad)


def _tiles(squares: tuple[torch.Tensor, ...]) -> _Sums:
    """Tiles over the last two dimensions; those at the ends may be smaller."""
    rows, columns = squares[0].shape[-2:]
    pad = (0, -columns % TILE, 0, -rows % TILE)
    grid = (-1, (rows + pad[3]) // TILE, TILE, (columns + pad[1]) // TILE, TILE)
    shape = (*squares[0].shape[:-2], grid[1], grid[3])
    sums = [_padded(x, pad).reshape(grid).sum((2, 4)).reshape(shape) for x in (*squares, torch.ones_like(squares[0]))]
    error, own, unit, n = sums
    return _Sums("tile", error, own, unit, n)


def _worst(sums: _Sums, quiet: float) -> tuple[torch.Tensor, CoarsePart | None]:
    """The rms ratios of all parts that are large enough, and the worst of them."""
    base = torch.maximum(torch.maximum(sums.own, sums.unit), sums.n * quiet)
    large = (sums.n >= LEAST_ELEMENTS) & (base > 0)
    ratio = torch.where(large, sums.error / base, 0.0).sqrt()
    if not bool(large.any()):
        return torch.zeros(0, dtype=torch.float64), None
    worst = int(ratio.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), ratio.shape)) if ratio.dim() else ()
    part = CoarsePart(sums.kind, place, int(sums.n.reshape(-1)[worst]), float(ratio.reshape(-1)[worst]), sums.dim)
    return ratio[large], part
