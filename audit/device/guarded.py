"""Storages between two guard bands, on any torch device, and exact copies of strided tensors to the host."""

from __future__ import annotations

from collections.abc import Sequence

import torch

#: Bytes on either side. A multiple of 512, the alignment of the CUDA and HIP caching allocators, so that the operand
#: keeps the alignment that kernels choose their vector width by.
GUARD_BYTES = 512
GUARD_BYTE = 0xA5


class GuardedStorage:
    """``n`` bytes holding ``content`` with ``GUARD_BYTES`` of ``GUARD_BYTE`` before and behind them.

    ``grows``: the memory handed out stands alone and can be resized, as ``resize_`` and ``out=`` ask.
    """

    def __init__(self, content: torch.Tensor, device: torch.device, grows: bool = False) -> None:
        self._n = content.numel()
        whole = torch.full((self._n + 2 * GUARD_BYTES,), GUARD_BYTE, dtype=torch.uint8, device=device)
        whole[GUARD_BYTES : GUARD_BYTES + self._n].copy_(content)
        self._whole = whole
        # A slice of an UntypedStorage shares its memory and is all that a view on it can resize or ask the length of.
        self._inner = whole.untyped_storage()[GUARD_BYTES : GUARD_BYTES + self._n]
        if grows:
            self._inner = whole[GUARD_BYTES : GUARD_BYTES + self._n].clone().untyped_storage()

    def view(self, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        """A tensor on the storage between the guards; sizes, strides and offset in elements."""
        empty = torch.empty(0, dtype=dtype, device=self._whole.device)
        return empty.set_(self._inner, offset, tuple(sizes), tuple(strides))

    def read(self) -> torch.Tensor:
        """The bytes between the guards now, 1-D uint8 on the CPU, a copy."""
        return self.view(torch.uint8, (self._n,), (1,), 0).to("cpu", copy=True)

    def guards_intact(self) -> bool:
        """False when a byte of either guard band has changed."""
        before, behind = self._whole[:GUARD_BYTES], self._whole[GUARD_BYTES + self._n :]
        return bool(((before == GUARD_BYTE).all() & (behind == GUARD_BYTE).all()).item())


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A CPU copy with the same sizes, strides and dtype, whatever lies between strided elements included."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.layout != torch.strided or plain.numel() == 0:
        return plain.to("cpu", copy=True)
    span = 1 + sum((size - 1) * stride for size, stride in zip(plain.size(), plain.stride(), strict=True))
    flat = plain.as_strided((span,), (1,)).to("cpu", copy=True)
    return flat.as_strided(plain.size(), plain.stride())


def address(tensor: torch.Tensor) -> tuple[int, int]:
    """Where its storage begins in memory, and where its first element lies; zeros for a tensor without memory."""
    if tensor.layout != torch.strided or tensor._is_zerotensor():
        return 0, 0
    return tensor.untyped_storage().data_ptr(), tensor.data_ptr()
