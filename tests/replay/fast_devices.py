"""Convolutions as libraries compute them fast, in real arithmetic: Winograd's F(2, 3), F(4, 3), F(6, 3), Fourier's.

The matrices of the first two are those that Lavin and Gray print (2015): they share nothing with the audit's own.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from audit.replay import winograd as ours

Matrices = tuple[Tensor, Tensor, Tensor]


def _rows(*rows: str) -> Tensor:
    return torch.tensor([[float(number) for number in row.split()] for row in rows], dtype=torch.float64)


#: By the places of a tile along each side: A^T, G, B^T.
_PRINTED: dict[int, Matrices] = {
    2: (
        _rows("1 1 1 0", "0 1 -1 -1"),
        _rows("2 0 0", "1 1 1", "1 -1 1", "0 0 2") / 2,
        _rows("1 0 -1 0", "0 1 1 0", "0 -1 1 0", "0 1 0 -1"),
    ),
    4: (
        _rows("1 1 1 1 1 0", "0 1 -1 2 -2 0", "0 1 1 4 4 0", "0 1 -1 8 -8 1"),
        _rows("6 0 0", "-4 -4 -4", "-4 4 -4", "1 2 4", "1 -2 4", "0 0 24") / 24,
        _rows("4 0 -5 0 1 0", "0 -4 -4 1 1 0", "0 4 -4 -1 1 0", "0 -2 -1 2 1 0", "0 2 -1 -2 1 0", "0 4 0 -5 0 1"),
    ),
}


def winograd(
    image: Tensor, weight: Tensor, padding: int = 1, groups: int = 1, tile: int = 4, kept: torch.dtype | None = None
) -> Tensor:
    """3 x 3, stride 1, summed in float32 and rounded once; ``kept``: transformed factors are rounded to it."""
    if tile == 6:
        return ours.filtered(image.float(), weight.float(), (padding, padding), groups).to(image.dtype).contiguous()
    outer, filters, inner = (matrix.float() for matrix in _PRINTED[tile])
    wanted = [size + 2 * padding - 2 for size in image.shape[2:]]
    high, wide = (-(-size // tile) * tile for size in wanted)
    lines = (padding, padding + wide - wanted[1], padding, padding + high - wanted[0])
    tiles = F.pad(image.float(), lines).unfold(2, tile + 2, tile).unfold(3, tile + 2, tile)
    data, kernels = inner @ tiles @ inner.T, filters @ weight.float() @ filters.T
    if kept is not None:
        data, kernels = data.to(kept).float(), kernels.to(kept).float()
    products = torch.einsum(
        "ngchwij,gfcij->ngfhwij", data.unflatten(1, (groups, -1)), kernels.unflatten(0, (groups, -1))
    )
    result = (outer @ products @ outer.T).flatten(1, 2).permute(0, 1, 2, 4, 3, 5)
    result = result.reshape(len(image), -1, high, wide)[:, :, : wanted[0], : wanted[1]]
    return result.to(image.dtype).contiguous()


def fourier(image: Tensor, weight: Tensor, padding: int = 1, groups: int = 1) -> Tensor:
    """Any kernel, stride 1, in one to three dimensions, by a transform of the whole image in float32."""
    dims = tuple(range(2, image.dim()))
    padded = F.pad(image.float(), (padding, padding) * len(dims))
    sizes = [padded.shape[dim] for dim in dims]
    data = torch.fft.rfftn(padded, dim=dims).unflatten(1, (groups, -1))
    kernels = torch.fft.rfftn(weight.float(), s=sizes, dim=dims).conj().unflatten(0, (groups, -1))
    products = torch.einsum("ngc...,gfc...->ngf...", data, kernels).flatten(1, 2)
    result = torch.fft.irfftn(products, s=sizes, dim=dims)
    for dim in dims:
        result = result.narrow(dim, 0, image.shape[dim] + 2 * padding - weight.shape[dim] + 1)
    return result.to(image.dtype).contiguous()


def halves(image: Tensor, weight: Tensor, padding: int = 1, groups: int = 1) -> Tensor:
    """Stride 2 as MIOpen's F(2, 3) has it: the four convolutions of every second line and column, added."""
    total: Tensor | None = None
    wanted = [(size + 2 * padding - 3) // 2 + 1 for size in image.shape[2:]]
    padded = F.pad(image, (padding, padding + 4, padding, padding + 4))
    for row in range(2):
        for column in range(2):
            some, taps = padded[:, :, row::2, column::2], weight[:, :, row::2, column::2]
            taps = F.pad(taps, (0, 3 - taps.shape[3], 0, 3 - taps.shape[2]))
            part = winograd(some, taps, 0, groups, 2).float()[:, :, : wanted[0], : wanted[1]]
            total = part if total is None else total + part
    assert total is not None
    return total.to(image.dtype).contiguous()
