"""The simulated device as the replay worker sees it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path as FilePath
from typing import TypeVar

import torch

from audit.device import hostmemory, timing
from audit.device.guarded import GuardedStorage, address, host_copy
from audit.device.sim import backend
from audit.device.sim.executor import EXECUTOR, Log
from audit.device.sim.faults import Fault, load_faults
from audit.schema import Copy, DeviceInfo, Kernel, Path, Timing

T = TypeVar("T")


class SimBuffer:
    """A guarded CPU storage whose views are tensors on the simulated device."""

    def __init__(self, content: torch.Tensor, grows: bool) -> None:
        self._storage = GuardedStorage(content, torch.device("cpu"), grows)

    def view(self, dtype: torch.dtype, sizes: Sequence[int], strides: Sequence[int], offset: int) -> torch.Tensor:
        """A SimTensor on this storage; views of one buffer see each other's writes."""
        return backend.SimTensor(self._storage.view(dtype, sizes, strides, offset))

    def read(self) -> torch.Tensor:
        return self._storage.read()

    def guards_intact(self) -> bool:
        return self._storage.guards_intact()


class SimDevice:
    """The process's simulated device; opening another one replaces its faults."""

    def __init__(self, faults: dict[str, Fault] | None = None, fault_file: str = "") -> None:
        backend.register()
        EXECUTOR.faults = dict(faults or {})
        self._fault_file = fault_file

    @classmethod
    def from_file(cls, path: FilePath) -> SimDevice:
        """With the faults of a fault file. Raises UsageError (``bad-fault-file``)."""
        return cls(load_faults(path), str(path))

    @property
    def torch_device(self) -> torch.device:
        return torch.device("sim:0")

    def info(self) -> DeviceInfo:
        """Says on its face that nothing of it was measured; lists the planted faults."""
        properties = {"mimics": "ROCm on gfx942", "faults": ", ".join(EXECUTOR.faults) or "none"}
        if self._fault_file:
            properties["fault_file"] = self._fault_file
        if not hostmemory.fill_available():
            properties["fresh_memory_fill"] = "not available: the C library is not glibc"
        return DeviceInfo("sim", "simulated device", "sim", properties)

    def buffer(self, content: torch.Tensor, grows: bool = False) -> SimBuffer:
        """Copies ``content`` (1-D uint8, CPU) between guards."""
        return SimBuffer(content, grows)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU copy with the same sizes, strides and dtype."""
        return host_copy(backend.unwrap(tensor))

    def address(self, tensor: torch.Tensor) -> tuple[int, int]:
        return address(backend.unwrap(tensor))

    def synchronize(self) -> None:
        return None

    def fill_fresh_memory(self, byte: int, n_bytes: Sequence[int]) -> None:
        """Through glibc's M_PERTURB, for every size; without glibc nothing happens and ``info`` says so."""
        hostmemory.fill_fresh(byte)

    def observe(self, call: Callable[[], T]) -> tuple[T, Path]:
        """Runs ``call``; the path is what the executor logged, so it is complete by construction."""
        outer, EXECUTOR.log = EXECUTOR.log, Log()
        try:
            result = call()
            log = EXECUTOR.log
        finally:
            EXECUTOR.log = outer
        path = Path(True, True, tuple(dict.fromkeys(log.ops)), summed_kernels(log.kernels), summed_copies(log.copies))
        return result, path

    def time(self, call: Callable[[], object], budget_s: float) -> Timing:
        """Wall clock of single runs, which says nothing about any GPU."""
        return timing.repeat(lambda: timing.wall_clock_us(call), budget_s)

    def begin_case(self, op: str, phase: str) -> None:
        """Sets the phase that faults are told; stops filling memory and forgets what was logged."""
        EXECUTOR.begin(phase)
        hostmemory.stop_filling()

    def peak_bytes(self) -> int | None:
        return None

    def ceilings(self) -> None:
        return None

    def free_memory(self) -> None:
        return None


def summed_kernels(kernels: Iterable[Kernel]) -> tuple[Kernel, ...]:
    """One entry per name, in order of first appearance."""
    total: dict[str, tuple[float, int]] = {}
    for kernel in kernels:
        us, count = total.get(kernel.name, (0.0, 0))
        total[kernel.name] = (us + kernel.us, count + kernel.count)
    return tuple(Kernel(name, us, count) for name, (us, count) in total.items())


def summed_copies(copies: Iterable[Copy]) -> tuple[Copy, ...]:
    """One entry per direction."""
    total: dict[str, Copy] = {}
    for copy in copies:
        seen = total.get(copy.direction, Copy(copy.direction, 0, 0))
        total[copy.direction] = Copy(copy.direction, seen.nbytes + copy.nbytes, seen.count + copy.count)
    return tuple(total.values())
