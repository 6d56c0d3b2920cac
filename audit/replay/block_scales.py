"""Scales of quantised operands, spread over the elements that they are for: of the whole, of rows, of blocks.

A scale tensor says by its shape what it is for: along a dimension it has one entry for each element, for all, or for
each 128, 32 or 16 of them (``torch.nn.functional.ScalingType``). Scales of 32 (MX) lie in tiles of 128 x 4 where a
kernel wants them swizzled (``SwizzleType.SWIZZLE_32_4_4``; cuBLAS, "1D block scaling factors layout").
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCKS = (128, 32, 16)
_TILE_ROWS, _TILE_COLUMNS = 128, 4
#: Elements of a block whose scales are swizzled.
_MX_BLOCK = 32


def spread(scale: Tensor, outer: int, inner: int, swizzled: bool) -> Tensor:
    """Scales of an operand of [outer, inner], of which ``inner`` is summed over, to be multiplied with it.

    Raises NotImplementedError where the shape does not say what the scales are for.
    """
    if scale.numel() == 1:
        return scale.reshape(1, 1)
    n_blocks = -(-inner // _MX_BLOCK)
    if swizzled and scale.numel() == _up(outer, _TILE_ROWS) * _up(n_blocks, _TILE_COLUMNS) and n_blocks > 1:
        scale = _unswizzled(scale, outer, n_blocks)
    if scale.dim() == 1 and scale.numel() == outer:
        scale = scale[:, None]
    if scale.dim() == 1 and scale.numel() == outer * n_blocks:
        scale = scale.reshape(outer, n_blocks)
    if scale.dim() != 2:
        raise NotImplementedError(f"scales of shape {list(scale.shape)} for an operand of {[outer, inner]}")
    for dim, size in enumerate((outer, inner)):
        scale = scale.repeat_interleave(_block(scale.size(dim), size), dim).narrow(dim, 0, size)
    return scale


def spread_right(scale: Tensor, inner: int, outer: int, swizzled: bool) -> Tensor:
    """As ``spread``, for the right operand of a product, [inner, outer]; its scales may be given transposed."""
    if scale.dim() == 2:
        try:
            return spread(scale.t(), outer, inner, swizzled).t()
        except NotImplementedError:
            pass
    return spread(scale, outer, inner, swizzled).t()


def _block(n_scales: int, size: int) -> int:
    for block in (1, size, *_BLOCKS):
        if -(-size // block) == n_scales:
            return block
    raise NotImplementedError(f"{n_scales} scales for {size} elements")


def _unswizzled(scale: Tensor, outer: int, n_blocks: int) -> Tensor:
    """[outer, n_blocks]: in a tile of 128 x 4, row r lies in line r % 32, where r // 32 comes before the column."""
    n_rows, n_columns = _up(outer, _TILE_ROWS) // _TILE_ROWS, _up(n_blocks, _TILE_COLUMNS) // _TILE_COLUMNS
    tiles = scale.reshape(n_rows, n_columns, 32, 4, _TILE_COLUMNS).transpose(2, 3)
    whole = tiles.reshape(n_rows, n_columns, _TILE_ROWS, _TILE_COLUMNS).transpose(1, 2)
    return whole.reshape(n_rows * _TILE_ROWS, n_columns * _TILE_COLUMNS)[:outer, :n_blocks]


def _up(size: int, step: int) -> int:
    return -(-size // step) * step


def usually_swizzled() -> bool:
    """Whether ``_scaled_mm``, which does not say, has its MX scales swizzled: cuBLAS wants it, hipBLASLt does not."""
    return torch.version.hip is None
