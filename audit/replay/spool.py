"""Spool files: the bits of many storages in one flat file, so that both children work on identical inputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

#: Each storage starts on such a boundary, as allocators give it to a kernel.
ALIGNMENT = 64

#: Where each storage lies in a spool file: storage name -> (first byte, length in bytes).
Index = Mapping[str, tuple[int, int]]


def write_spool(path: Path, storages: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, int]]:
    """Writes 1-D uint8 CPU tensors to ``path`` and says where each lies. Raises OSError on a full disk."""
    index: dict[str, tuple[int, int]] = {}
    with path.open("wb") as file:
        for name, content in storages.items():
            file.write(b"\0" * (-file.tell() % ALIGNMENT))
            index[name] = (file.tell(), content.numel())
            if content.numel():
                file.write(content.contiguous().numpy().data)
    return index


def read_spool(path: Path, index: Index) -> dict[str, torch.Tensor]:
    """The storages as 1-D uint8 tensors, mapped copy-on-write: a write changes neither the file nor a later read."""
    size = max((start + length for start, length in index.values()), default=0)
    if size == 0:
        return {name: torch.empty(0, dtype=torch.uint8) for name in index}
    whole = torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)
    return {name: whole[start : start + length] for name, (start, length) in index.items()}


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage under a CPU tensor as 1-D uint8, sharing memory with it."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def on_storage(
    content: torch.Tensor, dtype: torch.dtype, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> torch.Tensor:
    """A tensor on a 1-D uint8 storage of its own: sizes, strides and offset in elements. Raises if it does not fit."""
    return torch.empty(0, dtype=dtype).set_(content.untyped_storage(), offset, sizes, strides)


def second_run(output: str) -> str:
    """The name of what a second run gave for an output, beside the first."""
    return f"{output} (second run)"
