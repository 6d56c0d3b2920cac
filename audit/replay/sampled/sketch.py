"""A block-diagonal random sketch of a whole output, and how far it may lie from that of the reference.

Every row of the output is cut into blocks of columns, and each block is summed with random weights w_j of either sign.
The same sums of the reference cost as much as one column a block, since the weights can be applied to the operand.
Their difference r is a weighted sum of the errors e_j of the block's elements.

*What a healthy output gives.* Its errors are those of a correct algorithm: the result rounded once to the output's
dtype, an error that is spread evenly over one step ulp_j and so has the variance ulp_j^2 / 12; and what an accumulation
in float32 (float64 for a float64 output) adds. With v = sum w_j^2 (ulp_j^2 / 12 + accumulation), x = r^2 / v is 1 on
average. An evenly spread error is strictly sub-Gaussian (Arbel, Marchal and Nguyen, ESAIM: P&S 24, 2020), so whatever
the data are, r / sqrt(v) has no heavier tails than a normal number, and a sum of n independent x none than chi-square
with n degrees of freedom, as far as Chernoff's bound goes: P(sum > t) <= exp(-(t - n - n ln(t / n)) / 2).

*What is judged.* The sums of x over entries, over tiles of 16 rows in one block, over whole rows, whole columns of
blocks, and all. Each keeps the largest; how unlikely that is, and with which allowance, is for a rule to say.

Independence fails where rows or columns of the operands are equal: equal rows have equal errors. Rows seen before are
left out of all sums but the entries; equal columns of one block count with the square of the sum of their weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.comparison import Sketch, SketchScale
from audit.replay.compare import unravel
from audit.replay.stream import Stream

#: Columns in a block: the width of the smaller output tiles of GPU kernels, and of the waves of AMD's matrix units.
WIDTH = 64
#: Blocks in a row; wider blocks where that is not enough. More would cost more than they find.
MAX_BLOCKS = 160
#: Rows in a tile: the height of the smallest matrix instruction.
TILE_ROWS = 16
#: Elements of the device's output looked at in one go, 1 MB of fp32.
_PIECE = 1 << 18
#: Sums of squares below this may have lost some that fp32 has no normal numbers for.
_LEAST = 2.0**-90
#: Variance of a number that is spread evenly over one step of 1.
_EVEN = 1.0 / 12.0
#: The median of chi-square with n degrees of freedom over n, for TILE_ROWS (Wilson and Hilferty 1931).
_MEDIAN = (1 - 2 / (9 * TILE_ROWS)) ** 3
#: Bits of a projection by which equal rows are recognised: far more than unequal ones share, fewer than fp64 rounds.
_KEY_BITS = 36


@dataclass(frozen=True)
class Blocks:
    """The weights, [blocks, width], zero behind the last column; ``squares`` likewise stand for w_j^2 in v."""

    weights: Tensor
    squares: Tensor
    n_columns: int

    @property
    def width(self) -> int:
        return self.weights.shape[1]

    @property
    def n(self) -> int:
        return self.weights.shape[0]

    def of(self, start: int, n: int) -> slice:
        """The blocks of ``n`` columns from ``start``, which is the first of a block."""
        return slice(start // self.width, -(-(start + n) // self.width))


def random_weights(n_columns: int, stream: Stream) -> Tensor:
    """0.5 to 1.5 of either sign, so that columns that changed places do not cancel: [blocks, width], padded by 0."""
    width = _width(n_columns)
    padded = torch.zeros(-(-n_columns // width), width, dtype=torch.float64)
    padded.view(-1)[:n_columns] = (stream.uniform(n_columns) + 0.5) * stream.signs(n_columns)
    return padded


def _width(n_columns: int) -> int:
    """Of a block: not below WIDTH, with MAX_BLOCKS at most, and one that leaves no rest if there is one near."""
    least = max(WIDTH, -(-n_columns // MAX_BLOCKS // TILE_ROWS) * TILE_ROWS)
    near = range(least, least + least // 2 + 1, TILE_ROWS)
    return min(n_columns, next((width for width in near if n_columns % width == 0), least))


def blocks_of(weights: Tensor, column_keys: Tensor) -> tuple[Blocks, Tensor]:
    """``column_keys`` tells equal columns, and has 0 for those without an error. The mask says which blocks have no
    column that an earlier block has too."""
    n_columns, (n_blocks, width) = column_keys.numel(), weights.shape
    squares, distinct = weights**2, torch.ones(n_blocks, dtype=torch.bool)
    values, group = torch.unique(column_keys, return_inverse=True)
    if values.numel() < n_columns:
        mine, block = weights.view(-1)[:n_columns], torch.arange(n_columns) // width
        pairs, member = torch.unique(group * n_blocks + block, return_inverse=True)
        n_members = torch.zeros(pairs.numel(), dtype=torch.float64).index_add(0, member, torch.ones_like(mine))
        total = torch.zeros(pairs.numel(), dtype=torch.float64).index_add(0, member, mine)
        together = (total**2 / n_members)[member]
        squares.view(-1)[:n_columns] = torch.maximum(mine**2, together)
        first_block = torch.full((values.numel(),), n_blocks).scatter_reduce(0, group, block, "amin")
        distinct[block[(first_block[group] < block) & (mine != 0) & (column_keys != 0)]] = False
    return Blocks(weights, squares, n_columns), distinct


def keys_of(projected: Tensor) -> Tensor:
    """int64 keys that are equal where projections are equal but for rounding in fp64; 0 for zero."""
    mantissa, exponent = torch.frexp(projected)
    return (mantissa * 2.0**_KEY_BITS).round().to(torch.int64) * 4096 + exponent * (mantissa != 0)


# --- the device's side -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sums:
    """``total`` sum w c and ``rounding`` sum w^2 ulp^2 / 12, [parts, rows, blocks] fp64, of the device's elements."""

    total: Tensor
    rounding: Tensor


def sums_of(view: Tensor, blocks: Blocks, replaced: Tensor | None = None, columns: Tensor | None = None) -> Sums:
    """Sketches ``view`` [parts, rows, columns], of which the given ``columns`` are taken from ``replaced`` instead.

    Half precision is summed in fp32, whose own rounding is a 10,000th of its steps or less; but rows whose squares do
    not fit there, in fp64. The total of a block that has NaN or Inf is not finite.
    """
    parts, rows, n_columns = view.shape
    total = torch.zeros(parts, rows, blocks.n, dtype=torch.float64)
    rounding = torch.zeros_like(total)
    wide = {work: _Summing(blocks, work, view.dtype) for work in (torch.float32, torch.float64)}
    step = max(1, _PIECE // max(n_columns, 1))
    for part in range(parts):
        for row in range(0, rows, step):
            some = slice(row, row + step)
            given = None if columns is None or replaced is None else (columns, replaced[part, some])
            found = wide[torch.float32].of(view[part, some], given) if view.dtype.itemsize == 2 else None
            if found is None or not _fits_single(*found):
                found = wide[torch.float64].of(view[part, some], given)
            total[part, some], rounding[part, some] = found
    smallest = torch.finfo(view.dtype).tiny ** 2 * blocks.squares.sum(1)  # the step of zero and of subnormal numbers
    return Sums(total, (rounding + smallest).mul_(torch.finfo(view.dtype).eps ** 2 * _EVEN))


def _fits_single(total: Tensor, powers: Tensor) -> bool:
    """Whether sums in fp32 lost nothing: no square became infinite, none that counts was too small for a number."""
    low, high = torch.aminmax(torch.where((powers == 0) & (total == 0), 1.0, powers))
    return float(low) > _LEAST and math.isfinite(float(high))


@dataclass(frozen=True)
class _Summing:
    """Sums rows of an output of ``dtype`` in the precision ``work``."""

    blocks: Blocks
    work: torch.dtype
    dtype: torch.dtype

    def of(self, piece: Tensor, given: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        """Sums of w c, and of w^2 times the square of the power of two at or below c, of ``piece`` [rows, columns],
        [rows, blocks]; with ``given`` columns and their elements in place of its own."""
        wide = piece.to(self.work, memory_format=torch.contiguous_format, copy=True)
        if given is not None:
            wide.index_copy_(1, given[0], given[1].to(self.work))
        blocked = _padded(wide, self.blocks)
        total = _weighted(blocked, self.blocks.weights)
        if given is not None:
            blocked.clamp_(-torch.finfo(self.dtype).max, torch.finfo(self.dtype).max)
        return total, _weighted(_powers(blocked).square_(), self.blocks.squares)


def _weighted(blocked: Tensor, weights: Tensor) -> Tensor:
    """[rows, blocks, width] summed with [blocks, width]: [rows, blocks]."""
    # A row by a matrix: the other way round takes eight times as long.
    return torch.bmm(weights.to(blocked.dtype).unsqueeze(1), blocked.permute(1, 2, 0)).squeeze(1).t()


def _padded(piece: Tensor, blocks: Blocks) -> Tensor:
    """[rows, columns] as [rows, blocks, width], zero behind the last column."""
    missing = blocks.n * blocks.width - piece.shape[1]
    if missing:
        piece = torch.nn.functional.pad(piece, (0, missing))
    return piece.reshape(piece.shape[0], blocks.n, blocks.width)


#: Elements of which a median is taken.
_ENOUGH = 1 << 16
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _powers(x: Tensor) -> Tensor:
    """The power of two at or below each magnitude, by clearing all bits of ``x`` but the exponent's; 0 for subnormal
    ones."""
    integer = _BITS[x.dtype.itemsize]
    infinite = torch.tensor([math.inf], dtype=x.dtype).view(integer)
    return x.view(integer).bitwise_and_(infinite).view(x.dtype)


def typical_of(error: Tensor, reference: Tensor, dtype: torch.dtype) -> float:
    """The median of the elements' errors in steps of ``dtype``, squared over that of one rounding (a quarter step)."""
    powers = _powers(reference.to(dtype, copy=True)).clamp_min_(torch.finfo(dtype).tiny)
    steps = powers.to(torch.float64) * torch.finfo(dtype).eps
    shares = (error.abs() / steps)[torch.isfinite(error)]
    shares = shares[:: max(1, shares.numel() // _ENOUGH)]
    return float(shares.median() * 4) ** 2 if shares.numel() else 1.0


# --- the statistic ---------------------------------------------------------------------------------------------------


def compared(reference: Tensor, sums: Sums, accumulation: Tensor, judged: Tensor, distinct: Tensor, blocks: Blocks,
             made_of: str, typical: float) -> Sketch:  # fmt: skip
    """The sketch's facts. ``reference`` and ``accumulation`` are [parts, rows, blocks]; ``judged`` [parts, rows] are
    the rows that have a sketch (no NaN or Inf among their operands); ``distinct`` as from ``blocks_of``. ``typical`` is
    that of single elements, which a fault in a few columns of every block does not move as it moves that of tiles."""
    variance = sums.rounding + accumulation
    excess = (sums.total - reference).square_().div_(variance.clamp_min(torch.finfo(torch.float64).tiny))
    excess = torch.where(torch.isfinite(excess), excess, math.inf)
    excess[~judged] = 0.0
    fresh = judged & _first_of_its_kind(reference, accumulation)
    scales = tuple(_scales(excess, judged, fresh, distinct))
    return Sketch(
        width=blocks.width,
        n_blocks=int(judged.sum()) * blocks.n,
        made_of=made_of,
        typical=min(typical, _typical(excess, fresh)),
        scales=scales,
    )


def _first_of_its_kind(reference: Tensor, accumulation: Tensor) -> Tensor:
    """Mask [parts, rows]: no row before has the same sketch, and so the same errors."""
    parts, rows, n_blocks = reference.shape
    weights = Stream(0, "rows", n_blocks).uniform(n_blocks).add_(0.5)
    keys = keys_of(reference.reshape(-1, n_blocks) @ weights)
    _, group = torch.unique(keys, return_inverse=True)
    order = torch.arange(keys.numel())
    first = torch.full((int(group.max()) + 1 if group.numel() else 0,), keys.numel()).scatter_reduce(
        0, group, order, "amin"
    )
    return (first[group] == order).view(parts, rows)


def _typical(excess: Tensor, fresh: Tensor) -> float:
    """The median over tiles of the mean excess, 1 for rounding alone: not moved by a fault in a few places."""
    tiles, counts = _tiles(excess, fresh)
    full = counts == TILE_ROWS
    if not bool(full.any()):
        rows = excess[fresh]
        return float(rows.median()) / 0.455 if rows.numel() else 1.0  # the median of chi-square with one degree
    return float(tiles[full].median()) / TILE_ROWS / _MEDIAN


def _tiles(excess: Tensor, fresh: Tensor) -> tuple[Tensor, Tensor]:
    """Sums over tiles, [parts, tiles, blocks], and how many rows each has, [parts, tiles, blocks]."""
    parts, rows, n_blocks = excess.shape
    missing = -rows % TILE_ROWS
    masked = torch.nn.functional.pad(excess * fresh.unsqueeze(-1), (0, 0, 0, missing)).nan_to_num_(math.inf)
    counts = torch.nn.functional.pad(fresh.to(torch.float64), (0, missing)).view(parts, -1, TILE_ROWS).sum(-1)
    tiles = masked.view(parts, -1, TILE_ROWS, n_blocks).sum(2)
    return tiles, counts.unsqueeze(-1).expand_as(tiles)


def _scales(excess: Tensor, judged: Tensor, fresh: Tensor, distinct: Tensor) -> Iterator[SketchScale]:
    parts, rows, n_blocks = excess.shape
    yield _scale("entry", excess, judged.to(torch.float64).unsqueeze(-1).expand_as(excess), (1, 1))
    yield _scale("tile", *_tiles(excess, fresh), (TILE_ROWS, 1))
    own = torch.where(fresh.unsqueeze(-1) & distinct, excess, 0.0)
    n_own = fresh.to(torch.float64) * int(distinct.sum())
    yield _scale("row", own.sum(2, keepdim=True), n_own.unsqueeze(-1), (1, n_blocks))
    per_block = torch.where(fresh.unsqueeze(-1), excess, 0.0).sum(1, keepdim=True)
    n_rows = fresh.sum(1).to(torch.float64).view(parts, 1, 1).expand_as(per_block)
    yield _scale("column", per_block, n_rows, (rows, 1))
    yield _scale("whole", own.sum().view(1, 1, 1), n_own.sum().view(1, 1, 1), (rows, n_blocks))


def _scale(name: str, sums: Tensor, counts: Tensor, extent: tuple[int, int]) -> SketchScale:
    """The least likely of many sums of ``counts`` squares each, [parts, rows, blocks] of either."""
    n, ratio = counts.clamp_min(1), sums / counts.clamp_min(1)
    surprise = torch.where(ratio > 1, n * (ratio - 1 - ratio.log()), ratio - 1)
    worst = int(surprise.nan_to_num_(math.inf).argmax())
    part, row, block = unravel(worst, tuple(sums.shape))
    return SketchScale(
        name=name,
        n=int((counts > 0).sum()),
        excess=float(sums.reshape(-1)[worst]),
        n_summed=int(counts.reshape(-1)[worst]),
        place=(part, row * extent[0], block),
    )
