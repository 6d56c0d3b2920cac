"""An output that is linear in each of two operands: products of matrices, convolutions and their gradients.

Every one is seen as ``parts`` x ``rows`` x ``columns``, where a column depends on its own slice of the right operand
alone. So chosen columns, and weighted sums of columns, come at the price of as many columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.replay.stream import Stream

#: Bytes of one widened piece of an operand: what is done to it next should find it in a cache that cores share.
PIECE_BYTES = 8 << 20
#: One row (column) in so many is compared exactly, at least and at most as many as follow, and those beside edges of
#: tiles. Together with the sketch this keeps to a tenth of the full reference's time.
ONE_IN, FEWEST, MOST = 256, 4, 16
#: Tiles of GPU kernels begin at multiples of these; the lines beside a few such edges are always among the exact ones.
_EDGES = (16, 64, 256)


@dataclass(frozen=True)
class Bilinear(ABC):
    """``alpha`` x left (x) right + ``beta`` x ``addend``, [parts, rows, columns], in the output's ``dtype``.

    ``addend`` has three dimensions that expand to these. ``depth`` is the number of products in one element. Operands
    are in the case's own dtypes; they are widened piece by piece.
    """

    left: Tensor
    right: Tensor
    dtype: torch.dtype
    alpha: float = 1.0
    beta: float = 1.0
    addend: Tensor | None = None

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int, int]:
        """Parts, rows, columns."""

    @property
    @abstractmethod
    def depth(self) -> int: ...

    @property
    def moves(self) -> float:
        """Rounding steps that both operands are moved by to show the noise: one, or in single and double precision so
        many that a long sum in plain order is within what is allowed. Its partial sums are each rounded by half a step
        and walk at random, which together is sqrt(depth) / 7 of what moves by one step make. In double precision the
        reference has the same; in single precision it is half of that, of which eight times is allowed."""
        shares = {torch.float64: 7.0, torch.float32: 14.0}
        return max(1.0, math.sqrt(self.depth) / shares[self.dtype]) if self.dtype in shares else 1.0

    def added(self, left: Tensor, right: Tensor, columns: Tensor, stream: Stream) -> Tensor | None:
        """The square of what other algorithms in use add to the error of a row, [parts, rows], in units of ``right``;
        see ``fast_convolutions``. None where all libraries sum products."""
        return None

    @property
    @abstractmethod
    def column_dim(self) -> int:
        """The dimension of ``right`` that is the output's columns."""

    @property
    @abstractmethod
    def part_dim(self) -> int:
        """The dimension of ``right`` that its parts are along; the output's parts go round them."""

    @abstractmethod
    def apply(self, right: Tensor) -> Tensor:
        """Left (x) ``right``, [parts, rows, columns of ``right``], in the dtype of ``right`` and bounded memory."""

    @abstractmethod
    def view(self, flat: Tensor) -> Tensor:
        """The elements of the whole output, given in logical order, as [parts, rows, columns]."""

    @abstractmethod
    def restricted(self, stream: Stream) -> tuple[Bilinear, Tensor]:
        """The same for a few rows with all their columns, and the flat indices of its elements in the whole output."""

    @abstractmethod
    def row_fourths(self) -> Tensor:
        """Sums of the fourth powers of the left operand's factors of each row, [parts, rows]."""

    def places(self, rows: Tensor | None = None, columns: Tensor | None = None) -> Tensor:
        """Flat indices of the elements of some rows and some columns (all where None), [parts, rows, columns]."""
        parts, n_rows, n_columns = self.shape
        strides = self.view(torch.empty(parts * n_rows * n_columns, device="meta")).stride()
        chosen = (torch.arange(n) if c is None else c for n, c in ((parts, None), (n_rows, rows), (n_columns, columns)))
        part, row, column = (index * stride for index, stride in zip(chosen, strides, strict=True))
        return part.view(-1, 1, 1) + row.view(1, -1, 1) + column

    def elements(self, places: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Part, row and column of the elements at these places."""
        parts, rows, columns = self.shape
        strides = self.view(torch.empty(parts * rows * columns, device="meta")).stride()
        part, within = places // (rows * columns), places % (rows * columns)
        outer, inner = (1, 2) if strides[1] >= strides[2] else (2, 1)
        found = {outer: within // strides[outer], inner: within % strides[outer]}
        return part, found[1], found[2]

    @property
    def flops(self) -> float:
        parts, rows, columns = self.shape
        return 2.0 * parts * rows * columns * self.depth

    # --- the right operand by columns ------------------------------------------------------------------------------

    def columns(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        """The right operand of some columns."""
        return self.right.index_select(self.column_dim, index).to(dtype)

    def along(self, values: Tensor) -> Tensor:
        """One value a column, shaped to be multiplied with the right operand."""
        return values.reshape([-1 if dim == self.column_dim else 1 for dim in range(self.right.dim())])

    def depth_factors(self, values: Tensor) -> Tensor:
        """One value for each product in an element, taken in turn from ``values``, the same for all columns."""
        sizes = [1 if dim == self.column_dim else size for dim, size in enumerate(self.right.shape)]
        n = torch.Size(sizes).numel()
        return values[torch.arange(n) % values.numel()].reshape(sizes)

    def per_column(self, piece: Tensor) -> Tensor:
        """``piece`` of the right operand summed over all but parts and columns, [its parts, columns]."""
        kept = self.part_dim, self.column_dim
        total = piece.sum([dim for dim in range(piece.dim()) if dim not in kept])
        return total if kept[0] < kept[1] else total.t()

    def weighted(self, piece: Tensor, factors: Tensor) -> Tensor:
        """``piece`` summed as by ``per_column``, with a factor for each product in an element."""
        return self.per_column(piece * factors)

    def fourth_norms(self, piece: Tensor) -> Tensor:
        """Square roots of the sums of fourth powers, as by ``per_column``."""
        return self.per_column(piece.square().square_()).sqrt_()

    def for_parts(self, values: Tensor) -> Tensor:
        """``values`` of the right operand's parts, [its parts, n], for those of the output: [parts, 1, n]."""
        return values.repeat(self.shape[0] // values.shape[0], 1).unsqueeze(1)

    def in_blocks(self, piece: Tensor, weights: Tensor) -> Tensor:
        """``piece`` (fp64, from a block's first column on) with its columns summed by ``weights`` [blocks, width]."""
        dim = self.column_dim
        n_blocks, width = weights.shape
        missing = n_blocks * width - piece.shape[dim]
        if missing:
            sizes = [missing if d == dim else size for d, size in enumerate(piece.shape)]
            piece = torch.cat((piece, piece.new_zeros(sizes)), dim)
        shape = [1] * (piece.dim() + 1)
        shape[dim : dim + 2] = [n_blocks, width]
        blocks: Tensor = piece.unflatten(dim, (n_blocks, width)) * weights.view(shape)
        return blocks.sum(dim + 1)

    def pieces(self, width: int) -> range:
        """First columns of the pieces that the right operand is widened in: multiples of ``width``."""
        n_bytes = 8 * self.right.numel() // max(self.shape[2], 1)
        step = max(width, PIECE_BYTES // max(n_bytes, 1) // width * width)
        return range(0, self.shape[2], step)

    def piece(self, start: int, width: int) -> Tensor:
        """The columns from ``start`` to the next piece's, in their own dtype."""
        step = self.pieces(width).step
        return self.right.narrow(self.column_dim, start, min(step, self.shape[2] - start))

    # --- the addend ------------------------------------------------------------------------------------------------

    def completed(self, product: Tensor, index: Tensor | slice, moved: float = 0.0) -> Tensor:
        """``alpha`` x product + ``beta`` x addend for the columns ``index``; the addend moved by that fraction."""
        product = product if self.alpha == 1.0 else product * self.alpha
        if self.addend is None or self.beta == 0:
            return product
        whole = self.addend.expand(-1, -1, self.shape[2]) if self.addend.shape[2] == 1 else self.addend
        return product + whole[:, :, index].to(product.dtype) * (self.beta * (1 + moved))


def lines_of(n: int, stream: Stream, n_wanted: int | None = None) -> Tensor:
    """Some of ``n`` rows or columns: the first and the last, others anywhere, in order.

    As many as ``n_wanted``, or one in ONE_IN and, where these are many, those beside a few edges of tiles.
    """
    n_some = min(n, max(FEWEST, min(MOST, n // ONE_IN)) if n_wanted is None else n_wanted)
    spread = stream.distinct(n_some, 0, n - 1)
    if n_some < MOST // 2:
        return spread
    edges = [place for edge in _EDGES for near in (edge, n // edge * edge) for place in (near - 1, near)]
    lines: Tensor = torch.unique(torch.cat((spread, torch.tensor([place for place in edges if 0 <= place < n]))))
    return lines
