"""What the replay worker asks of a device. One implementation a file: ``gpu`` (HIP and CUDA), ``sim``, ``cpu``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import torch

from audit.schema import Ceilings, DeviceInfo, Path, Timing

T = TypeVar("T")


class Buffer(Protocol):
    """One storage on the device between two guard bands."""

    def view(self, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        """A tensor on this storage; sizes, strides and offset in elements. Its storage is exactly the operand's."""
        ...

    def read(self) -> torch.Tensor:
        """The storage's bytes now, as a 1-D uint8 CPU tensor."""
        ...

    def guards_intact(self) -> bool:
        """False when something wrote before or behind the storage."""
        ...


class Device(Protocol):
    """A place to run ops. Every method may raise what the backend raises; the worker classifies it."""

    @property
    def torch_device(self) -> torch.device:
        """What factory ops are given in place of ``Named("device", "device")``."""
        ...

    def info(self) -> DeviceInfo: ...

    def buffer(self, content: torch.Tensor, grows: bool = False) -> Buffer:
        """Copies ``content`` (1-D uint8, CPU) into a fresh guarded storage.

        ``grows``: the op may resize it; such a storage is an allocation of its own, without guards.
        """
        ...

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU copy with the same sizes, strides and dtype (gaps between strided elements are not defined)."""
        ...

    def address(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Where its storage begins in the device's memory, and where its first element lies; zeros if not strided."""
        ...

    def synchronize(self) -> None: ...

    def fill_fresh_memory(self, byte: int, n_bytes: Sequence[int]) -> None:
        """Makes memory handed out next hold ``byte``, for outputs of about these sizes, where the allocator allows."""
        ...

    def observe(self, call: Callable[[], T]) -> tuple[T, Path]:
        """Runs ``call`` once, synchronised, and says which ops, kernels and copies ran inside."""
        ...

    def time(self, call: Callable[[], object], budget_s: float) -> Timing:
        """Times ``call`` repeatedly within about ``budget_s`` seconds; ``call`` must be repeatable."""
        ...

    def ceilings(self) -> Ceilings | None:
        """What the device can do at most, measured now; None where times mean nothing."""
        ...

    def begin_case(self, op: str, phase: str) -> None:
        """Told before a case: the simulated device picks its fault here; others do nothing."""
        ...

    def peak_bytes(self) -> int | None:
        """Peak device memory since ``begin_case``, or None where there is no such count."""
        ...

    def free_memory(self) -> None:
        """Gives back what is kept for later, so that a case that lacks memory has all of it."""
        ...
