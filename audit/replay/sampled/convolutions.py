"""Convolutions as bilinear outputs: forward, transposed, and the gradients of input and weight, in one to three
dimensions.

A column is an output channel, a part an image and a group; the rows are the places of the image. A few channels of a
convolution are products of the kernel's matrices with the image, added where each place of the kernel puts them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from audit.replay.sampled.bilinear import PIECE_BYTES, Bilinear, lines_of
from audit.replay.sampled.fast_convolutions import added
from audit.replay.stream import Stream

#: Images, and rows of places in each, of which all channels are compared.
_IMAGES, _LINES = 2, 3
#: Of the last dimensions of a tensor.
Index = tuple[Any, ...]


@dataclass(frozen=True)
class Geometry:
    """Where the places of a kernel reach; one number for each spatial dimension. ``narrow`` are the sizes on the side
    whose steps are ``stride`` (the output's of a convolution), ``wide`` those on the other side."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    kernel: tuple[int, ...]
    wide: tuple[int, ...]
    narrow: tuple[int, ...]

    @property
    def n_kernel(self) -> int:
        return math.prod(self.kernel)

    def reaches(self) -> Iterator[tuple[int, Index, Index]]:
        """For each place of the kernel: its number, and which narrow places meet which wide ones."""
        for number, place in enumerate(itertools.product(*map(range, self.kernel))):
            sides = [self._reach(dim, at) for dim, at in enumerate(place)]
            if all(side is not None for side in sides):
                narrow, wide = (tuple(side[which] for side in sides if side) for which in (0, 1))
                yield number, (..., *narrow), (..., *wide)

    def _reach(self, dim: int, at: int) -> tuple[slice, slice] | None:
        """Narrow place i meets the wide place i x stride - padding + at x dilation."""
        step, shift = self.stride[dim], at * self.dilation[dim] - self.padding[dim]
        first = max(0, -(shift // step))
        last = min(self.narrow[dim] - 1, (self.wide[dim] - 1 - shift) // step)
        if first > last:
            return None
        return slice(first, last + 1), slice(first * step + shift, last * step + shift + 1, step)


@dataclass(frozen=True)
class Convolution(Bilinear):
    """Left is [images, groups x channels, places], right [groups, columns, channels, kernel]."""

    geometry: Geometry = Geometry((), (), (), (), (), ())

    @property
    def groups(self) -> int:
        return self.right.shape[self.part_dim]

    @property
    def places_out(self) -> tuple[int, ...]:
        return self.geometry.narrow

    @property
    def places_in(self) -> tuple[int, ...]:
        return self.geometry.wide

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.left.shape[0] * self.groups, math.prod(self.places_out), self.right.shape[self.column_dim]

    @property
    def channels(self) -> int:
        return self.left.shape[1] // self.groups

    @property
    def depth(self) -> int:
        return self.channels * self.geometry.n_kernel

    @property
    def flops(self) -> float:
        return 2 * super().flops  # the CPU's fp64 convolution makes half as many a second as its product

    @property
    def has_places(self) -> bool:
        """Whether rows are the places of an image."""
        return True

    def added(self, left: Tensor, right: Tensor, columns: Tensor, stream: Stream) -> Tensor | None:
        return None if self.geometry.n_kernel == 1 else added(self, left, right, columns, stream)

    def beside(self, rows: Tensor) -> Tensor:
        """Of each row the largest of those beside it, which small tiles mix with it, [parts, rows]."""
        n = len(self.places_out)
        pool = (torch.nn.functional.max_pool1d, torch.nn.functional.max_pool2d, torch.nn.functional.max_pool3d)[n - 1]
        placed: Tensor = pool(rows.view(-1, 1, *self.places_out), 3, 1, 1)
        return placed.flatten(1)

    @property
    def column_dim(self) -> int:
        return 1

    @property
    def part_dim(self) -> int:
        return 0

    def view(self, flat: Tensor) -> Tensor:
        _, rows, columns = self.shape
        return flat.view(-1, self.groups, columns, rows).transpose(2, 3).flatten(0, 1)

    def apply(self, right: Tensor) -> Tensor:
        n_images, n_columns = self.left.shape[0], right.shape[self.column_dim]
        kernels = self._kernels(right)
        result = right.new_zeros(n_images, self.groups, n_columns, *self.places_out)
        each = 8 * math.prod(self.places_in) * (self.left.shape[1] + self.groups * n_columns * self.geometry.n_kernel)
        step = max(1, PIECE_BYTES // max(each, 1))
        for start in range(0, n_images, step):
            images = self.left[start : start + step].to(right.dtype)
            images = images.reshape(-1, self.groups, self.channels, *self.places_in)
            self._add(kernels, images, result[start : start + step])
        return result.flatten(3).transpose(2, 3).flatten(0, 1)

    def _kernels(self, right: Tensor) -> Tensor:
        """[kernel, groups, columns, channels]."""
        return right.flatten(3).permute(3, 0, 1, 2)

    def _add(self, kernels: Tensor, images: Tensor, result: Tensor) -> None:
        """Adds the product of every place of the kernel; all at once where each place of the image is met."""
        if all(step == 1 for step in self.geometry.stride):
            met = self._met(kernels, images)
            for number, narrow, wide in self.geometry.reaches():
                result[narrow] += met[:, :, number][wide]
            return
        for number, narrow, wide in self.geometry.reaches():
            some = images[wide]
            product = torch.matmul(kernels[number], some.flatten(3))
            result[narrow] += product.unflatten(-1, some.shape[3:])

    def _met(self, kernels: Tensor, images: Tensor) -> Tensor:
        """Every place of the kernel times every place of the image, [images, groups, kernel, columns, places]."""
        stacked = kernels.transpose(0, 1).flatten(1, 2)  # [groups, kernel x columns, channels]
        met = torch.matmul(stacked, images.flatten(3))
        met = met.unflatten(2, (kernels.shape[0], kernels.shape[2]))
        placed: Tensor = met.unflatten(-1, self.places_in)
        return placed

    def row_fourths(self) -> Tensor:
        ones = torch.ones(self.groups, 1, 1, *self.geometry.kernel, dtype=torch.float64)
        fourths = []
        step = max(1, PIECE_BYTES // (8 * max(1, self.left[0].numel())))
        for start in range(0, self.left.shape[0], step):
            images = self.left[start : start + step].to(torch.float64).square().square_()
            fourths.append(images.unflatten(1, (self.groups, self.channels)).sum(2))
        return dataclasses.replace(self, left=torch.cat(fourths)).apply(ones).squeeze(-1)

    def restricted(self, stream: Stream) -> tuple[Bilinear, Tensor]:
        """Some lines of places (along the first dimension) in some images, each seen as an image of its own."""
        images, lines = lines_of(self.left.shape[0], stream, _IMAGES), lines_of(self.places_out[0], stream, _LINES)
        geometry = self.geometry
        reach = (geometry.kernel[0] - 1) * geometry.dilation[0] + 1
        starts = lines * geometry.stride[0] - geometry.padding[0]
        at = starts.view(-1, 1) + torch.arange(reach)
        small = dataclasses.replace(
            geometry,
            padding=(0, *geometry.padding[1:]),
            wide=(reach, *geometry.wide[1:]),
            narrow=(1, *geometry.narrow[1:]),
        )
        return self._banded(images, at, small), self._line_places(images, lines)

    def _banded(self, images: Tensor, at: Tensor, geometry: Geometry) -> Bilinear:
        """The same for lines of the input alone: for each image and row of ``at`` an image of those lines."""
        n_lines = self.places_in[0]
        inside = ((at >= 0) & (at < n_lines)).view(1, 1, *at.shape, *[1] * (len(self.places_in) - 1))
        bands = torch.where(inside, self.left[images][:, :, at.clamp(0, n_lines - 1)], 0)
        bands = bands.transpose(1, 2).flatten(0, 1)  # [images x lines, channels, reach, ...]
        addend = self.addend
        if addend is not None and addend.shape[0] > 1:
            addend = addend[: self.groups].repeat(len(bands), 1, 1)
        return dataclasses.replace(self, left=bands, geometry=geometry, addend=addend)

    def _line_places(self, images: Tensor, lines: Tensor) -> Tensor:
        """Flat indices of ``lines`` of ``images``, [images x lines x groups, places in a line, columns]."""
        _, n_rows, n_columns = self.shape
        n_line = math.prod(self.places_out[1:])
        image = images.view(-1, 1, 1, 1, 1) * (self.groups * n_columns * n_rows)
        line = lines.view(1, -1, 1, 1, 1) * n_line
        group = torch.arange(self.groups).view(1, 1, -1, 1, 1) * (n_columns * n_rows)
        place = torch.arange(n_line).view(1, 1, 1, -1, 1)
        column = torch.arange(n_columns).view(1, 1, 1, 1, -1) * n_rows
        return (image + line + group + place + column).flatten(0, 2)


@dataclass(frozen=True)
class TransposedConvolution(Convolution):
    """Right is [groups, channels, columns, kernel]; the output is on the wide side."""

    @property
    def places_out(self) -> tuple[int, ...]:
        return self.geometry.wide

    @property
    def places_in(self) -> tuple[int, ...]:
        return self.geometry.narrow

    @property
    def depth(self) -> int:
        return self.channels * -(-self.geometry.n_kernel // math.prod(self.geometry.stride))

    @property
    def column_dim(self) -> int:
        return 2

    def _kernels(self, right: Tensor) -> Tensor:
        return right.flatten(3).permute(3, 0, 2, 1)

    def _add(self, kernels: Tensor, images: Tensor, result: Tensor) -> None:
        met = self._met(kernels, images)
        for number, narrow, wide in self.geometry.reaches():
            result[wide] += met[:, :, number][narrow]

    def restricted(self, stream: Stream) -> tuple[Bilinear, Tensor]:
        """As of a convolution, where the lines are among those that the first place of a kernel reaches."""
        geometry = self.geometry
        step, padding, reach = geometry.stride[0], geometry.padding[0], (geometry.kernel[0] - 1) * geometry.dilation[0]
        images = lines_of(self.left.shape[0], stream, _IMAGES)
        multiples = lines_of(-(-geometry.wide[0] // step), stream, _LINES)
        first = -((reach - padding) // step)  # of the narrow lines that meet the wide line 0
        at = (multiples + first).view(-1, 1) + torch.arange(max(1, padding // step - first + 1))
        small = dataclasses.replace(
            geometry,
            padding=(padding - first * step, *geometry.padding[1:]),
            narrow=(at.shape[1], *geometry.narrow[1:]),
            wide=(1, *geometry.wide[1:]),
        )
        return self._banded(images, at, small), self._line_places(images, multiples * step)


@dataclass(frozen=True)
class WeightGradient(Convolution):
    """Left is [images, groups x channels, wide places], right the gradient [images, groups, columns, narrow places].

    The output is [groups x columns, channels, kernel]: rows are channels and places of the kernel, parts are groups.
    """

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.groups, self.channels * self.geometry.n_kernel, self.right.shape[2]

    @property
    def depth(self) -> int:
        return self.left.shape[0] * math.prod(self.geometry.narrow)

    @property
    def column_dim(self) -> int:
        return 2

    @property
    def part_dim(self) -> int:
        return 1

    @property
    def has_places(self) -> bool:
        return False

    def beside(self, rows: Tensor) -> Tensor:
        return rows

    def view(self, flat: Tensor) -> Tensor:
        parts, rows, columns = self.shape
        return flat.view(parts, columns, rows).transpose(1, 2)

    def apply(self, right: Tensor) -> Tensor:
        n_images, groups, n_columns = right.shape[:3]
        result = right.new_zeros(groups, self.channels, self.geometry.n_kernel, n_columns)
        step = max(1, PIECE_BYTES // (16 * max(1, self.left[0].numel())))
        for start in range(0, n_images, step):
            images = self.left[start : start + step].to(right.dtype)
            images = images.reshape(-1, groups, self.channels, *self.geometry.wide)
            some = right[start : start + step]
            self._add_places(images, some, result)
        return result.flatten(1, 2)

    def _add_places(self, images: Tensor, right: Tensor, result: Tensor) -> None:
        """Adds the product of each place of the kernel. Without strides its operands are ranges of padded images, laid
        out alike: nothing is copied for a place."""
        geometry = self.geometry
        if any(step != 1 for step in geometry.stride):
            for number, narrow, wide in geometry.reaches():
                first, second = images[wide].flatten(3), right[narrow].flatten(3)
                result[:, :, number] += torch.matmul(first, second.transpose(2, 3)).sum(0)
            return
        reach = [(k - 1) * d for k, d in zip(geometry.kernel, geometry.dilation, strict=True)]
        sizes = [narrow + more for narrow, more in zip(geometry.narrow, reach, strict=True)]
        pads = [(p, size - wide - p) for p, size, wide in zip(geometry.padding, sizes, geometry.wide, strict=True)]
        padded = torch.nn.functional.pad(images, [pad for pair in reversed(pads) for pad in pair]).flatten(3)
        spread = torch.nn.functional.pad(right, [pad for more in reversed(reach) for pad in (0, more)]).flatten(3)
        for number, place in enumerate(itertools.product(*map(range, geometry.kernel))):
            shift = sum(
                at * d * math.prod(sizes[dim + 1 :])
                for dim, (at, d) in enumerate(zip(place, geometry.dilation, strict=True))
            )
            n = padded.shape[3] - shift
            product = torch.matmul(padded[..., shift:], spread[..., :n].transpose(2, 3))
            result[:, :, number] += product.sum(0)

    def row_fourths(self) -> Tensor:
        """Of all places, also those that some places of the kernel do not meet: an upper bound."""
        total = torch.zeros(self.left.shape[1], dtype=torch.float64)
        for image in self.left:
            total += image.to(torch.float64).square().square_().flatten(1).sum(1)
        return total.view(self.groups, self.channels).repeat_interleave(self.geometry.n_kernel, 1)

    def restricted(self, stream: Stream) -> tuple[Bilinear, Tensor]:
        """Some channels of the input."""
        index = lines_of(self.channels, stream, max(1, min(_LINES, self.channels // 64)))
        left = self.left.unflatten(1, (self.groups, self.channels))[:, :, index].flatten(1, 2)
        n_kernel = self.geometry.n_kernel
        rows = (index.view(-1, 1) * n_kernel + torch.arange(n_kernel)).flatten()
        return dataclasses.replace(self, left=left), self.places(rows=rows)
