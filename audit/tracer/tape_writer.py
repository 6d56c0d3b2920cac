"""Writes the tape of a step: gives every tensor a number, and keeps what no call on the tape has made.

A tensor is known by the storage that it lies on, which carries a mark of this tape as long as it lives, and by its
place there; so a view that autograd unpacks in backward is the tensor that was saved in forward.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch

from audit.tape import CALLS_FILE, VALUES_FILE, Again, Fed, Leaf, Memory, TapeCall, TapeEnd, to_line

_MARK = "_rocm_audit_tape"
#: Each storage begins on such a boundary of the file, so that it can be read as any dtype.
_ALIGNMENT = 64
#: Elements of which the mean magnitude is taken; more are looked at in steps.
_LOOKED_AT = 1 << 20

_Place: TypeAlias = "tuple[torch.dtype, tuple[int, ...], tuple[int, ...], int]"


class TapeFull(Exception):
    """The values of a step need more room than there is for them."""


@dataclass
class _Known:
    """What the tape knows of one storage: its number where it was there before, and the tensors seen on it."""

    tape: object
    memory: int | None = None
    numbers: dict[_Place, int] = field(default_factory=dict)


class TapeWriter:
    """Two files in ``folder``, begun anew by ``restart``; values of more than ``limit_bytes`` raise TapeFull."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit = limit_bytes
        self.n_unseen = 0
        self.full = False
        self.restart()

    def restart(self) -> None:
        """Forgets all: marks of the tape so far mean nothing to the new one."""
        self._identity = object()
        self._calls = (self._folder / CALLS_FILE).open("w", encoding="utf-8")
        self._values = (self._folder / VALUES_FILE).open("wb")
        self._n_tensors = 0
        self._n_memories = 0
        self.n_calls = 0

    def end(self, reason: str) -> None:
        self._calls.write(to_line(TapeEnd(self.n_calls, self.n_unseen, reason)))
        self._calls.close()
        self._values.close()

    def call(self, call: TapeCall) -> None:
        self._calls.write(to_line(call))
        self.n_calls += 1

    # --- tensors ---------------------------------------------------------------------------------------------------

    def taken(self, tensor: torch.Tensor, host: bool) -> int:
        """The number of an operand, before its call runs; one never seen is kept with all of its storage."""
        known, place = self._known(tensor), _place_of(tensor)
        if (number := known.numbers.get(place)) is not None:
            return number
        if not known.numbers and known.memory is None:
            known.memory = self._keep(tensor, host)
        number = known.numbers[place] = self._next()
        dtype, sizes, strides, offset = place
        if known.memory is not None:
            self._calls.write(to_line(Leaf(number, known.memory, _name(dtype), sizes, strides, offset)))
        else:
            of = next(iter(known.numbers.values()))
            self._calls.write(to_line(Again(number, of, sizes, strides, offset)))
        return number

    def given(self, tensor: torch.Tensor) -> int:
        """The number of a result: a new one, also where the call wrote what was known."""
        known = self._known(tensor)
        number = known.numbers[_place_of(tensor)] = self._next()
        return number

    def fed(self, tensor: torch.Tensor, number: int) -> Fed:
        """Keeps the values of a result, contiguous."""
        plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
        start, nbytes = self._append(plain)
        return Fed(number, _name(tensor.dtype), tuple(tensor.shape), start, nbytes)

    def _known(self, tensor: torch.Tensor) -> _Known:
        storage = tensor.untyped_storage()
        known = getattr(storage, _MARK, None)
        if known is None or known.tape is not self._identity:
            known = _Known(self._identity)
            setattr(storage, _MARK, known)
        return known

    def _keep(self, tensor: torch.Tensor, host: bool) -> int:
        content = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        start, nbytes = self._append(content)
        self._n_memories += 1
        self._calls.write(to_line(Memory(self._n_memories, _name(tensor.dtype), start, nbytes, host)))
        return self._n_memories

    def _append(self, tensor: torch.Tensor) -> tuple[int, int]:
        raw = tensor.reshape(-1).view(torch.uint8) if tensor.numel() else torch.empty(0, dtype=torch.uint8)
        self._values.write(b"\0" * (-self._values.tell() % _ALIGNMENT))
        start = self._values.tell()
        if start + raw.numel() > self._limit:
            self.full = True
            raise TapeFull
        self._values.write(raw.numpy().data)
        return start, raw.numel()

    def _next(self) -> int:
        self._n_tensors += 1
        return self._n_tensors


def _place_of(tensor: torch.Tensor) -> _Place:
    return tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def magnitudes(tensors: Iterable[tuple[int, torch.Tensor]]) -> tuple[tuple[int, float], ...]:
    """Number and mean magnitude of each floating tensor with elements."""
    return tuple((number, magnitude(tensor)) for number, tensor in tensors if is_measured(tensor))


def is_measured(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() or tensor.is_complex()) and tensor.numel() > 0


def magnitude(tensor: torch.Tensor) -> float:
    """Mean magnitude of the elements, or of every n-th of many."""
    flat = tensor.detach().resolve_conj().resolve_neg().reshape(-1)
    looked = flat[:: max(1, flat.numel() // _LOOKED_AT)]
    wide = torch.complex128 if tensor.is_complex() else torch.float64
    return float(looked.to(wide).abs().mean())
