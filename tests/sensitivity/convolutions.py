"""3x3 convolutions by Winograd's algorithm, with new data each time, and ways in which one goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.replay.sampled.convolution_calls import forward_of
from audit.replay.sampled.linear_output import LinearOutput, prepared
from audit.replay.stream import Stream
from tests.replay.fast_devices import winograd
from tests.sensitivity.trials import Found, codes, compared

IMAGE, FILTERS = (2, 64, 28, 28), 64
_GEOMETRY = {"stride": [1, 1], "padding": [1, 1], "dilation": [1, 1], "groups": 1, "transposed": False}


@dataclass
class Trial:
    """An image after ReLU, a weight, and the tile of the device, whose transforms are kept in half precision if its
    operands are."""

    generator: torch.Generator
    image: Tensor
    weight: Tensor
    tile: int

    @classmethod
    def make(cls, seed: int, dtype: torch.dtype) -> Trial:
        generator = torch.Generator().manual_seed(seed)
        image = torch.randn(IMAGE, generator=generator).relu().to(dtype)
        weight = (torch.randn(FILTERS, IMAGE[1], 3, 3, generator=generator) / 24).to(dtype)
        trial = cls(generator, image, weight, 2)
        if dtype == torch.float32:
            trial.tile = 2 + 2 * trial.below(3)
        return trial

    def below(self, n: int) -> int:
        return int(torch.randint(n, (1,), generator=self.generator))

    def healthy(self, n_channels: int = IMAGE[1]) -> Tensor:
        """Of the first channels of the image."""
        kept = self.image.dtype if self.image.dtype.itemsize == 2 else None
        return winograd(self.image[:, :n_channels], self.weight[:, :n_channels], tile=self.tile, kept=kept)

    def reference(self, seed: int) -> LinearOutput:
        out = torch.empty(IMAGE[0], FILTERS, *IMAGE[2:], dtype=self.image.dtype)
        form = forward_of("convolution", {"input": self.image, "weight": self.weight, **_GEOMETRY}, out)
        assert form is not None
        return prepared(form, Stream(seed, "convolution"))


def tile_off(trial: Trial, share: float) -> Tensor:
    out = trial.healthy()
    image, channel = trial.below(IMAGE[0]), 16 * trial.below(FILTERS // 16)
    row, column = (4 * trial.below(size // 4) for size in IMAGE[2:])
    out[image, channel : channel + 16, row : row + 4, column : column + 4] *= 1 + share
    return out


def channel_off(trial: Trial, share: float) -> Tensor:
    out = trial.healthy()
    out[:, trial.below(FILTERS)] *= 1 + share
    return out


def channels_left_out(trial: Trial, n: float) -> Tensor:
    return trial.healthy(IMAGE[1] - int(n))


def border_wrong(trial: Trial, n: float) -> Tensor:
    out = trial.healthy()
    out[trial.below(IMAGE[0]), :, -1] = out[trial.below(IMAGE[0]), :, -2].clone()
    return out


def element_unwritten(trial: Trial, n: float) -> Tensor:
    out = trial.healthy()
    flat = out.view(-1)
    places = (flat > flat.max() / 4).nonzero().flatten()
    flat[places[trial.below(len(places))]] = 0
    return out


@dataclass(frozen=True)
class Fault:
    """Sizes from the largest down, in single and in half precision."""

    make: Callable[[Trial, float], Tensor]
    unit: str
    single: tuple[float, ...]
    half: tuple[float, ...]


FAULTS: Mapping[str, Fault] = {
    "one tile of 4 x 4 in 16 channels too large": Fault(
        tile_off, "of its value", (0.01, 0.001, 0.0005, 0.0002), (0.1, 0.05, 0.03, 0.02)
    ),
    "one channel too large": Fault(channel_off, "of its value", (0.001, 0.0002, 0.0001), (0.05, 0.02, 0.01)),
    "channels of the image left out": Fault(channels_left_out, "of 64", (4, 1), (4, 1)),
    "last row of an image wrong": Fault(border_wrong, "row", (1,), (1,)),
    "element unwritten, above a quarter of the largest": Fault(element_unwritten, "element", (1,), (1,)),
}


def judged(seed: int, dtype: torch.dtype, sweep: bool = True) -> Iterator[Found]:
    """A healthy output, and one of each fault: of all sizes, or the first."""
    trial = Trial.make(seed, dtype)
    reference = trial.reference(seed)
    yield Found("healthy", 0.0, codes(compared(reference, trial.healthy())))
    for name, fault in FAULTS.items():
        sizes = fault.single if dtype == torch.float32 else fault.half
        for size in sizes if sweep else sizes[:1]:
            yield Found(name, size, codes(compared(reference, fault.make(trial, size))))
