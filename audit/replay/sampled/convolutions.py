"""Convolutions as bilinear outputs: forward, transposed, and the gradients of input and weight, in one to three dimensions.

A column is an output channel, a part an image and a group; the rows are the places of the image. A few channels of a
convolution are products of the kernel's matrices with the image, added where each place of the kernel puts them.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.replay.sampled.bilinear import PIECE_BYTES, Bilinear, lines_of
from audit.replay.stream import Stream

#: Images, and rows of places in each, of which all channels are compared.
_IMAGES, _LINES = 3, 4


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

    def reaches(self) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """For each place of the kernel: its number, and which narrow places meet which wide ones."""
        for number, place in enumerate(itertools.product(*map(range, self.kernel))):
            sides = [self._reach(dim, at) for dim, at in enumerate(place)]
            if all(side is not None for side in sides):
                yield number, tuple(s[0] for s in sides if s), tuple(s[1] for s in sides if s)

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
    def transforms(self) -> int:
        return 0 if self.geometry.n_kernel == 1 else 2  # Winograd's, of image and kernel: MIOpen and cuDNN choose it

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
        n_kernel, _, n_columns, _ = kernels.shape
        if all(step == 1 for step in self.geometry.stride):
            stacked = kernels.transpose(0, 1).flatten(1, 2)  # [groups, kernel x columns, channels]
            met = torch.matmul(stacked, images.flatten(3)).unflatten(2, (n_kernel, n_columns))
            met = met.unflatten(-1, self.places_in)
            for number, narrow, wide in self.geometry.reaches():
                result[(..., *narrow)] += met[(slice(None), slice(None), number, slice(None), *wide)]
            return
        for number, narrow, wide in self.geometry.reaches():
            some = images[(..., *wide)]
            product = torch.matmul(kernels[number], some.flatten(3))
            result[(..., *narrow)] += product.unflatten(-1, some.shape[3:])

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
        inside = (at >= 0) & (at < geometry.wide[0])
        bands = self.left[images][:, :, at.clamp(0, geometry.wide[0] - 1)]  # [images, channels, lines, reach, ...]
        bands = torch.where(inside.view(1, 1, *inside.shape, *[1] * (len(geometry.wide) - 1)), bands, 0)
        bands = bands.transpose(1, 2).flatten(0, 1)
        small = dataclasses.replace(
            geometry, padding=(0, *geometry.padding[1:]), wide=(reach, *geometry.wide[1:]), narrow=(1, *geometry.narrow[1:])
        )
        return dataclasses.replace(self, left=bands, geometry=small, addend=_first_image(self.addend, self.groups, len(bands))), self._line_places(images, lines)

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


def _first_image(addend: Tensor | None, groups: int, n_images: int) -> Tensor | None:
    return addend if addend is None or addend.shape[0] == 1 else addend[:groups].repeat(n_images, 1, 1)


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
        for number, narrow, wide in self.geometry.reaches():
            some = images[(..., *narrow)]
            product = torch.matmul(kernels[number], some.flatten(3))
            result[(..., *wide)] += product.unflatten(-1, some.shape[3:])

    def restricted(self, stream: Stream) -> tuple[Bilinear, Tensor]:
        """Some images whole where there are many, else none of all channels: the columns have every place."""
        n_images = self.left.shape[0]
        images = lines_of(n_images, stream, max(1, min(2, n_images // 64)))
        form = dataclasses.replace(self, left=self.left[images], addend=_first_image(self.addend, self.groups, len(images)))
        parts = (images.view(-1, 1) * self.groups + torch.arange(self.groups)).flatten()
        return form, self.places()[parts] if n_images == len(images) else self._part_places(parts)

    def _part_places(self, parts: Tensor) -> Tensor:
        _, rows, columns = self.shape
        return parts.view(-1, 1, 1) * (rows * columns) + torch.arange(rows).view(1, -1, 1) + torch.arange(columns) * rows


@dataclass(frozen=True)
class WeightGradient(Convolution):
    """Left is [images, groups x channels, wide places], right the gradient [images, groups, columns, narrow places].

    The output is [groups x columns, channels, kernel]: its rows are channels and places of the kernel, its parts groups.
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
            for number, narrow, wide in self.geometry.reaches():
                first, second = images[(..., *wide)].flatten(3), some[(..., *narrow)].flatten(3)
                result[:, :, number] += torch.matmul(first, second.transpose(2, 3)).sum(0)
        return result.flatten(1, 2)

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
