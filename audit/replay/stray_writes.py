"""Bytes of an operand's storage that no view which is written covers, and that changed nevertheless."""

from __future__ import annotations

from collections.abc import Container

import torch

from audit.replay.inputs import Storage, reach, torch_dtype
from audit.schema import TensorSpec


def may_stray(storage: Storage, written: Container[int]) -> bool:
    """Whether there are bytes beside what is written at the positions ``written``."""
    return not any(_is_whole(spec, storage) for position, spec in storage.members if position in written)


def strayed(storage: Storage, written: Container[int], before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether bytes changed that no operand at the positions ``written`` covers; all tensors 1-D uint8."""
    changed = before != after
    for position, spec in storage.members:
        if position in written and bool(changed.any()):
            changed &= ~_covered(spec, before.numel())
    return bool(changed.any())


def _is_whole(spec: TensorSpec, storage: Storage) -> bool:
    n, itemsize = 1, torch_dtype(spec.dtype).itemsize
    for size in spec.sizes:
        n *= size
    return spec.offset == 0 and reach(spec.sizes, spec.strides) == n and n * itemsize == storage.nbytes


def _covered(spec: TensorSpec, n_bytes: int) -> torch.Tensor:
    """Mask of the bytes of a storage that an operand's elements are made of."""
    itemsize = torch_dtype(spec.dtype).itemsize
    elements = torch.zeros(-(-n_bytes // itemsize), dtype=torch.bool)
    if 0 not in spec.sizes:
        sizes = tuple(1 if step == 0 else size for size, step in zip(spec.sizes, spec.strides, strict=True))
        elements.as_strided(sizes, spec.strides, spec.offset).fill_(True)
    return elements.repeat_interleave(itemsize)[:n_bytes]
