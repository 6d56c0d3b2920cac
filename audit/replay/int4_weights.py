"""Weights of four bits as ``_convert_weight_to_int4pack`` lays them out for the matrix units of a GPU.

The tensor has the same shape on both kinds of GPU and another order inside, so it cannot be carried from one to the
other. Source: the kernels' index arithmetic in ATen/native/cuda/int4mm.cu, read on 2026-12-01.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: Along the inner dimension of a tile.
_TILE = 16


def packed(weight: Tensor, inner_tiles: int, hip: bool | None = None) -> Tensor:
    """int32 [n / 8, k / (16 inner_tiles), 32, inner_tiles / 2] of uint8 [n, k / 2]: the first of two is above."""
    n, k = weight.size(0), weight.size(1) * 2
    places = _places(n, k, inner_tiles, hip)
    values = torch.stack((weight >> 4, weight & 15), -1).reshape(-1).to(torch.int64)[places]
    words = (values << (4 * torch.arange(8))).sum(-1)
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)
    return signed.reshape(n // 8, k // (_TILE * inner_tiles), 32, inner_tiles // 2)


def unpacked(words: Tensor, hip: bool | None = None) -> Tensor:
    """int64 [n, k] of 0 to 15; the inverse of ``packed``."""
    n, inner_tiles = words.size(0) * 8, words.size(3) * 2
    k = words.size(1) * _TILE * inner_tiles
    values = (words.reshape(-1, 1).to(torch.int64) >> (4 * torch.arange(8))) & 15
    whole = torch.empty(n * k, dtype=torch.int64)
    whole[_places(n, k, inner_tiles, hip).reshape(-1)] = values.reshape(-1)
    return whole.reshape(n, k)


def _places(n: int, k: int, inner_tiles: int, hip: bool | None) -> Tensor:
    """[words, 8]: which elements of the weight, row by row, a word holds from its lowest four bits up.

    A lane has two pairs of neighbours in each of two tiles; the firsts of the four pairs come before the seconds.
    """
    hip = torch.version.hip is not None if hip is None else hip
    rows, lanes = (16, 64) if hip else (8, 32)
    if n % rows or k % (_TILE * inner_tiles):
        raise NotImplementedError("weights that do not fill their tiles have no formula here")
    lane = torch.arange(lanes)
    row, part = (lane % rows, lane // rows) if hip else (lane // 4, lane % 4)
    apart = 1 if hip else 4
    pair = torch.stack([(part * 2 if hip else part), (part * 2 if hip else part) + apart], -1)
    pairs = torch.cat((pair, pair + _TILE // 2), -1)  # in units of two elements: two of each tile
    columns = torch.cat((pairs * 2, pairs * 2 + 1), -1)
    outer = torch.arange(n // rows).reshape(-1, 1, 1, 1, 1) * rows + row.reshape(1, 1, -1, 1, 1)
    start = torch.arange(k // (_TILE * inner_tiles)).reshape(1, -1, 1, 1, 1) * _TILE * inner_tiles
    tile = torch.arange(inner_tiles // 2).reshape(1, 1, 1, -1, 1) * 2 * _TILE
    return (outer * k + start + tile + columns.reshape(1, 1, lanes, 1, 8)).reshape(-1, 8)
