"""Products of matrices as bilinear outputs: mm, addmm, bmm, baddbmm, addbmm, linear, matmul, mv and their kin, and of
quantised matrices with one scale, or one for each row and column.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from audit.replay.sampled.bilinear import PIECE_BYTES, Bilinear, lines_of
from audit.replay.sampled.sketch import WIDTH
from audit.replay.stream import Stream


@dataclass(frozen=True)
class Product(Bilinear):
    """Left is [parts, rows, depth], right [parts, depth, columns]. ``turned``: the output is the transpose of that."""

    turned: bool = False

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.left.shape[0], self.left.shape[1], self.right.shape[2]

    @property
    def depth(self) -> int:
        return self.left.shape[2]

    @property
    def column_dim(self) -> int:
        return 2

    @property
    def part_dim(self) -> int:
        return 0

    def apply(self, right: Tensor) -> Tensor:
        parts, rows, depth = self.left.shape
        result = right.new_empty(parts, rows, right.shape[2])
        n_rows = max(1, min(rows, PIECE_BYTES // (8 * max(depth, 1))))
        n_parts = max(1, PIECE_BYTES // (8 * max(depth, 1) * max(rows, 1)))
        # Fresh memory for each piece would cost page faults.
        memory = right.new_empty(min(n_parts, parts) * n_rows * depth)
        for part in range(0, parts, n_parts):
            some = slice(part, part + n_parts)
            for row in range(0, rows, n_rows):
                narrow = self.left[some, row : row + n_rows]
                piece = memory[: narrow.numel()].view(narrow.shape).copy_(narrow)
                torch.bmm(piece, right[some], out=result[some, row : row + n_rows])
        return result

    def view(self, flat: Tensor) -> Tensor:
        parts, rows, columns = self.shape
        if self.turned:
            return flat.view(parts, columns, rows).transpose(1, 2)
        return flat.view(parts, rows, columns)

    def in_blocks(self, piece: Tensor, weights: Tensor) -> Tensor:
        n_blocks, width = weights.shape
        parts, depth, n_columns = piece.shape
        if n_columns != n_blocks * width:
            return super().in_blocks(piece, weights)
        blocked = piece.view(parts, depth, n_blocks, width).permute(2, 3, 0, 1).flatten(2)
        # A row by a matrix: the other way round takes eight times as long.
        return torch.bmm(weights.unsqueeze(1), blocked).view(n_blocks, parts, depth).permute(1, 2, 0)

    def weighted(self, piece: Tensor, factors: Tensor) -> Tensor:
        return torch.matmul(factors.transpose(1, 2), piece).squeeze(1)

    def fourth_norms(self, piece: Tensor) -> Tensor:
        some = piece[:, :: self._thinned]
        return some.square().square_().sum(1).mul_(self._thinned).sqrt_()

    @property
    def _thinned(self) -> int:
        """One product in so many is looked at for the noise of summing, which in half precision is a thousandth of the
        rounding's or less."""
        return 16 if self.dtype.itemsize == 2 and self.depth >= 1024 else 1

    def row_fourths(self) -> Tensor:
        parts, rows, depth = self.left.shape
        result = torch.empty(parts, rows, dtype=torch.float64)
        n_rows = max(1, PIECE_BYTES // (64 * max(depth, 1)))
        for part in range(parts):
            for row in range(0, rows, n_rows):
                some = self.left[part, row : row + n_rows, :: self._thinned].to(torch.float64)
                result[part, row : row + n_rows] = some.square().square_().sum(-1).mul_(self._thinned)
        return result

    def restricted(self, stream: Stream) -> tuple[Bilinear, Tensor]:
        index = lines_of(self.left.shape[1], stream)
        addend = self.addend
        if addend is not None and addend.shape[1] > 1:
            addend = addend[:, index]
        return dataclasses.replace(self, left=self.left[:, index], addend=addend), self.places(rows=index)

    def with_wider_columns(self) -> Product:
        """The same output seen so that a sketch saves most: with at least as many columns as rows."""
        return self.transposed() if self.shape[2] < WIDTH and self.shape[1] > self.shape[2] else self

    def transposed(self) -> Product:
        """The same output with rows for columns."""
        addend = None if self.addend is None else self.addend.transpose(1, 2)
        left, right = self.right.transpose(1, 2), self.left.transpose(1, 2)
        return dataclasses.replace(self, left=left, right=right, addend=addend, turned=not self.turned)


# --- the ops: named arguments to left, right and addend ---------------------------------------------------------------

_Operands = tuple[Tensor, Tensor, "Tensor | None"]


def _mm(a: Mapping[str, Any]) -> _Operands:
    return a["self"], a["mat2"], None


def _addmm(a: Mapping[str, Any]) -> _Operands:
    return a["mat1"], a["mat2"], a["self"]


def _baddbmm(a: Mapping[str, Any]) -> _Operands:
    return a["batch1"], a["batch2"], a["self"]


def _addbmm(a: Mapping[str, Any]) -> _Operands:
    """The sum over the batch makes one product of it, as deep as all of them."""
    first, second = a["batch1"], a["batch2"]
    return first.transpose(0, 1).flatten(1), second.flatten(0, 1), a["self"]


def _mv(a: Mapping[str, Any]) -> _Operands:
    return a["self"], a["vec"].unsqueeze(1), None


def _addmv(a: Mapping[str, Any]) -> _Operands:
    return a["mat"], a["vec"].unsqueeze(1), a["self"].unsqueeze(-1)


def _linear(a: Mapping[str, Any]) -> _Operands:
    rows, weight = a["input"], a["weight"]
    if weight.dim() == 1:
        weight = weight.unsqueeze(0)
    return rows.reshape(-1, rows.shape[-1]), weight.t(), a.get("bias")


def _matmul(a: Mapping[str, Any]) -> _Operands:
    left, right = a["self"], a["other"]
    left = left.unsqueeze(0) if left.dim() == 1 else left
    right = right.unsqueeze(1) if right.dim() == 1 else right
    if right.dim() == 2:
        return left.reshape(-1, left.shape[-1]), right, None
    batch = torch.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left, right = (t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in (left, right))
    return left, right, None


def _scaled_mm(a: Mapping[str, Any]) -> _Operands:
    """fp8 numbers are numbers of bfloat16 too; with scales of their own rows and columns they take float32."""
    left, right = a["self"], a["mat2"]
    if a["scale_a"].numel() == 1 == a["scale_b"].numel():
        return left.to(torch.bfloat16), right.to(torch.bfloat16), a.get("bias")
    scales = a["scale_a"].reshape(-1, 1), a["scale_b"].reshape(1, -1)
    return left.float() * scales[0], right.float() * scales[1], a.get("bias")


def _int8(a: Mapping[str, Any]) -> _Operands:
    return a["self"], (a["mat2"].float() * a["scales"].float().unsqueeze(1)).t(), None


def _scale_of(base: str, a: Mapping[str, Any]) -> float | None:
    """What the product of the operands is multiplied with; None where scales are of blocks, which have no form here."""
    if base != "_scaled_mm":
        return float(a.get("alpha", 1))
    first, second = a["scale_a"], a["scale_b"]
    if first.numel() == 1 == second.numel():
        return float(first) * float(second)
    ends = a["self"].shape[0], a["mat2"].shape[1]
    is_plain = first.dtype == torch.float32 and (first.numel(), second.numel()) == ends
    return 1.0 if is_plain else None


#: Op (without overload and the underscore of an in-place form) to its operands.
_PRODUCTS: Mapping[str, Callable[[Mapping[str, Any]], _Operands]] = {
    "mm": _mm,
    "bmm": lambda a: (a["self"], a["mat2"], None),
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "addbmm": _addbmm,
    "linear": _linear,
    "matmul": _matmul,
    "mv": _mv,
    "addmv": _addmv,
    "_scaled_mm": _scaled_mm,
    "_weight_int8pack_mm": _int8,
}
PRODUCTS = frozenset(_PRODUCTS)


def product_of(base: str, arguments: Mapping[str, Any], dtype: torch.dtype) -> Product | None:
    """The product that the op ``base`` computes with these arguments by name; None where it is of another kind."""
    alpha = _scale_of(base, arguments)
    if alpha is None:
        return None
    left, right, addend = _PRODUCTS[base](arguments)
    if not (left.is_floating_point() and right.is_floating_point()):
        return None
    left, right = (t if t.dim() == 3 else t.unsqueeze(0) for t in (left, right))
    parts, rows, columns = left.shape[0], left.shape[1], right.shape[2]
    if addend is not None:
        addend = addend.reshape(*(1,) * (3 - addend.dim()), *addend.shape)
        if addend.shape[0] not in (1, parts) or addend.shape[1] not in (1, rows) or addend.shape[2] not in (1, columns):
            return None
    return Product(left, right, dtype, alpha, float(arguments.get("beta", 1)), addend)
