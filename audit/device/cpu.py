"""The CPU as a device: the reference side of a replay, and a stand-in in tests."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from audit.device import hostmemory, timing
from audit.device.guarded import GuardedStorage, address, host_copy
from audit.schema import DeviceInfo, Path, Timing

T = TypeVar("T")


class CpuDevice:
    """Runs ops on the CPU of this process."""

    @property
    def torch_device(self) -> torch.device:
        return torch.device("cpu")

    def info(self) -> DeviceInfo:
        """``arch`` is the instruction set that ATen's kernels were dispatched to, such as ``avx2``."""
        arch = torch.backends.cpu.get_cpu_capability().lower()
        properties = {"threads": str(torch.get_num_threads()), "machine": platform.machine()}
        return DeviceInfo("cpu", platform.processor() or platform.machine(), arch, properties)

    def buffer(self, content: torch.Tensor, grows: bool = False) -> GuardedStorage:
        """Copies ``content`` (1-D uint8, CPU) between guards."""
        return GuardedStorage(content, self.torch_device, grows)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy with the same sizes, strides and dtype."""
        return host_copy(tensor)

    def address(self, tensor: torch.Tensor) -> tuple[int, int]:
        return address(tensor)

    def synchronize(self) -> None:
        return None

    def fill_fresh_memory(self, byte: int, n_bytes: Sequence[int]) -> None:
        """Through glibc's M_PERTURB, for every size; without glibc nothing happens."""
        hostmemory.fill_fresh(byte)

    def observe(self, call: Callable[[], T]) -> tuple[T, Path]:
        """Runs ``call``; nobody asks the CPU for its path."""
        return call(), Path()

    def time(self, call: Callable[[], object], budget_s: float) -> Timing:
        """Wall clock of single runs."""
        return timing.repeat(lambda: timing.wall_clock_us(call), budget_s)

    def begin_case(self, op: str, phase: str) -> None:
        hostmemory.stop_filling()

    def peak_bytes(self) -> int | None:
        return None

    def ceilings(self) -> None:
        return None

    def free_memory(self) -> None:
        return None
