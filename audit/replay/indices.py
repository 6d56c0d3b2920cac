"""Roles of integer operands: indices within what they point into, classes, counts, divisors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from audit.replay.masks import exactly
from audit.replay.operand import Operand, Role, in_order, plain
from audit.replay.stream import Stream
from audit.replay.synthesis import integers
from audit.schema import TensorSpec

#: How many things an index can point at.
Limit: TypeAlias = Callable[[Operand], int]

# --- limits ----------------------------------------------------------------------------------------------------


def rows_of(name: str) -> Limit:
    """The first size of another argument."""
    return lambda operand: (*operand.sizes_of(name), 1)[0]


def along_dim(name: str = "self", dim: str = "dim") -> Limit:
    """Another argument's size in the dimension that the call names; all its elements where it names none."""

    def limit(operand: Operand) -> int:
        sizes = operand.sizes_of(name)
        if operand.arguments.get(dim) is None:
            return elements_of(name)(operand)
        return sizes[operand.integer(dim)] if sizes else 1

    return limit


def elements_of(name: str) -> Limit:
    return lambda operand: torch.Size(operand.sizes_of(name)).numel()


def number_in(name: str) -> Limit:
    return lambda operand: operand.integer(name)


def classes(operand: Operand) -> int:
    """Classes of a loss whose input is [classes], [batch, classes] or [batch, classes, ...]."""
    sizes = operand.sizes_of("self")
    return sizes[1] if len(sizes) > 1 else (*sizes, 1)[0]


def indexed_dim(operand: Operand) -> int:
    """The size that one of ``indices`` counts along; a mask among them takes as many dimensions as it has."""
    indices = operand.arguments.get("indices")
    sizes = operand.sizes_of("self")
    dim = 0
    for item in indices[: operand.place] if isinstance(indices, tuple) else ():
        dim += len(item.sizes) if isinstance(item, TensorSpec) and item.dtype in ("bool", "uint8") else 1
    return sizes[dim] if dim < len(sizes) else 1


# --- indices ---------------------------------------------------------------------------------------------------


def index(limit: Limit, default_limit: int = 16) -> Role:
    """Numbers below ``limit``, in the recorded range where it fits. A limit below 1 means that there is none."""

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        end = limit(operand)
        return within(operand, 0, (end if end > 0 else default_limit) - 1, stream)

    return make


def within(operand: Operand, low: int, high: int, stream: Stream) -> torch.Tensor:
    """Integers in the part of the recorded range that is valid, counted from the end where the program did so."""
    values = operand.values
    if values.minimum is not None and values.maximum is not None:
        recorded_low, recorded_high = int(values.minimum), int(values.maximum)
        if low == 0 and recorded_low < 0 and recorded_high <= high:
            low, high = max(recorded_low, -high - 1), recorded_high
        else:
            low, high = max(low, min(recorded_low, high)), min(high, max(recorded_high, low))
    return in_order(operand, lambda values: integers(operand.n, low, max(low, high), values, stream))


def distinct_index(operand: Operand, stream: Stream) -> torch.Tensor:
    """Indices along ``dim`` that hit no element twice where they can, so that it is settled what is written."""
    end = along_dim()(operand)
    dim = operand.integer("dim") if len(operand.sizes) > 1 else -1
    length = operand.sizes[dim] if operand.sizes else 1
    if operand.described or length > end:
        return index(along_dim())(operand, stream)
    others = [size for place, size in enumerate(operand.sizes) if place != dim % max(len(operand.sizes), 1)]
    n_lines = torch.Size(others).numel()
    order = stream.uniform(n_lines * end).reshape(n_lines, end).argsort(dim=-1, stable=True)[:, :length]
    return order.reshape(*others, length).movedim(-1, dim) if operand.sizes else order.reshape(())


def positions(operand: Operand, stream: Stream) -> torch.Tensor:
    """One of ``indices``: integers below the size that they count along, or a mask that selects as many as needed."""
    if operand.dtype not in (torch.bool, torch.uint8):
        return index(indexed_dim)(operand, stream)
    wanted = _n_selected(operand)
    if wanted is None or wanted > operand.n:
        return plain(operand, stream) if operand.values.mean is not None else _half(operand, stream)
    return exactly(operand.n, wanted, stream).reshape(operand.sizes)


def _half(operand: Operand, stream: Stream) -> torch.Tensor:
    return exactly(operand.n, (operand.n + 1) // 2, stream).reshape(operand.sizes)


def _n_selected(operand: Operand) -> int | None:
    """How many elements the mask must select, by the values that are put or by the indices beside it."""
    indices = operand.arguments.get("indices")
    for item in indices if isinstance(indices, tuple) else ():
        if isinstance(item, TensorSpec) and item.dtype not in ("bool", "uint8"):
            n_beside = torch.Size(item.sizes).numel()
            return n_beside if n_beside != 1 else None
    rest = len(operand.sizes_of("self")) - len(operand.sizes)
    values = operand.sizes_of("values")
    return values[0] if len(values) == rest + 1 and values[0] != 1 else None


def targets(operand: Operand, stream: Stream) -> torch.Tensor:
    """Classes of a loss; where the recorded range reaches below 0 to ``ignore_index``, one in eight is ignored."""
    made = within(operand, 0, classes(operand) - 1, stream)
    ignored = operand.integer("ignore_index", -100)
    if operand.described and ignored < 0 and int(operand.values.minimum or 0) < 0:
        made = _within_classes(operand, stream)
        made[stream.uniform(operand.n).reshape(operand.sizes) < 0.125] = ignored
    return made


def _within_classes(operand: Operand, stream: Stream) -> torch.Tensor:
    return stream.integers(operand.n, 0, classes(operand) - 1).reshape(operand.sizes)


def labels_until_minus_one(operand: Operand, stream: Stream) -> torch.Tensor:
    """Different classes in each row, ended by -1 (multilabel_margin_loss)."""
    length = operand.sizes[-1] if operand.sizes else 1
    n_rows = operand.n // max(length, 1)
    made = stream.uniform(operand.n).reshape(n_rows, length).argsort(dim=-1, stable=True)
    made[:, (length + 1) // 2 :] = -1
    return made.reshape(operand.sizes)


def pooled(n_dims: int) -> Role:
    """Flat places within the last ``n_dims`` dimensions of ``self``: the first element of each pooling window.

    A place outside its window would be ignored by one device and used by another.
    """

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        source = operand.sizes_of("self")[-n_dims:]
        place = torch.zeros((), dtype=torch.int64)
        for axis, size in enumerate(source):
            start = _window_starts(operand, axis, size, operand.sizes[-n_dims:][axis])
            place = place[..., None] * size + start
        return place.to(torch.int64)

    return make


def _window_starts(operand: Operand, axis: int, size: int, n_windows: int) -> torch.Tensor:
    """First element inside ``self`` of each window, by stride and padding, or in equal parts for adaptive pooling."""
    windows = torch.arange(n_windows)
    if "kernel_size" not in operand.arguments or "padding" not in operand.arguments:
        return windows * size // max(n_windows, 1)
    stride = axis_of(operand, "stride", axis) or axis_of(operand, "kernel_size", axis)
    dilation = axis_of(operand, "dilation", axis) or 1
    first = windows * stride - axis_of(operand, "padding", axis)
    into = torch.clamp((-first + dilation - 1) // dilation, min=0)
    return first + into * dilation


def axis_of(operand: Operand, name: str, axis: int) -> int:
    given = operand.arguments.get(name)
    if isinstance(given, tuple):
        item = given[min(axis, len(given) - 1)] if given else 0
        return item if isinstance(item, int) else 0
    return given if isinstance(given, int) else 0


def unpooled(n_dims: int) -> Role:
    """Different flat places in the planes of ``output_size``."""

    def make(operand: Operand, stream: Stream) -> torch.Tensor:
        place = torch.zeros((), dtype=torch.int64)
        for axis, n_places in enumerate(operand.sizes[-n_dims:]):
            size = axis_of(operand, "output_size", axis)
            place = place[..., None] * size + torch.arange(n_places) * size // max(n_places, 1)
        return place

    return make


def pivots(operand: Operand, stream: Stream) -> torch.Tensor:
    """Rows to swap as LAPACK counts them, from 1: row i with one that is not above it."""
    n = operand.sizes[-1] if operand.sizes else 1
    row = torch.arange(n)
    ahead = (stream.uniform(operand.n).reshape(operand.sizes) * (n - row)).to(torch.int64)
    return row + 1 + torch.minimum(ahead, n - 1 - row)


# --- counts and small numbers ------------------------------------------------------------------------------------


def mask_for_source(operand: Operand, stream: Stream) -> torch.Tensor:
    """A mask with no more true elements than there are to be scattered."""
    n_source = elements_of("source")(operand)
    share = 0.5 if operand.values.mean is None else operand.values.mean
    return exactly(operand.n, min(round(share * operand.n), n_source), stream).reshape(operand.sizes)


def between(low: int, high: int) -> Role:
    """Integers in a fixed range."""
    return lambda operand, stream: within(operand, low, high, stream)


def divisor(operand: Operand, stream: Stream) -> torch.Tensor:
    """An integer divisor is never 0, on which the CPU raises and a GPU does not."""
    if operand.floats or operand.dtype == torch.bool:
        return plain(operand, stream)
    made = plain(operand, stream) if operand.described else stream.integers(operand.n, 1, 7).reshape(operand.sizes)
    return made.masked_fill(made == 0, 1)


def shift(operand: Operand, stream: Stream) -> torch.Tensor:
    """Bits to shift by: fewer than there are."""
    return plain(operand, stream) if operand.floats else within(operand, 0, 8 * operand.dtype.itemsize - 2, stream)
