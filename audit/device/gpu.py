"""HIP and CUDA GPUs through one code path, since torch calls both ``cuda``.

The flavour comes from ``torch.version.hip`` and the arch from ``gcnArchName``: ``get_device_capability`` of a gfx90a is
(9, 0), that of an H100.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

import torch

from audit.device.ceilings import measure_ceilings
from audit.device.event_timer import CacheFlush, EventTimer
from audit.device.guarded import GuardedStorage, address, host_copy
from audit.device.library_state import library_state
from audit.device.peak_memory import PeakMemory
from audit.device.profile import Profiler
from audit.schema import Ceilings, DeviceInfo, Path, Timing

T = TypeVar("T")

#: For each copy, product and launch whose rate is measured.
_CEILING_BUDGET_S = 0.15


def flavour() -> Literal["hip", "cuda"] | None:
    """What torch was built for: ``hip``, ``cuda``, or None for a CPU build."""
    if torch.version.hip:
        return "hip"
    return "cuda" if torch.version.cuda else None


def arch_of(properties: Any) -> str:
    """``gfx942`` from ``gfx942:sramecc+:xnack-`` on HIP; ``sm_90`` on CUDA."""
    if torch.version.hip:
        return str(properties.gcnArchName).split(":")[0]
    return f"sm_{properties.major}{properties.minor}"


#: Attributes of the device properties that are shown; a torch that lacks one leaves it out.
_PROPERTIES = (
    "gcnArchName", "multi_processor_count", "total_memory", "warp_size", "L2_cache_size", "clock_rate",
    "memory_clock_rate", "memory_bus_width", "shared_memory_per_block", "max_threads_per_multi_processor",
    "regs_per_multiprocessor", "is_integrated",
)  # fmt: skip


def describe(properties: Any) -> DeviceInfo:
    """The device of these properties. AMD's name may be empty: then the arch and the count of CUs stand for it."""
    backend = flavour() or "cuda"
    arch = arch_of(properties)
    shown = {name: str(value) for name in _PROPERTIES if (value := getattr(properties, name, None)) is not None}
    if backend == "cuda":
        shown.pop("gcnArchName", None)  # there the field repeats the name
    if override := os.environ.get("HSA_OVERRIDE_GFX_VERSION"):
        shown["HSA_OVERRIDE_GFX_VERSION"] = override  # the arch above is what the user claims, not the chip's
    shown["torch"] = torch.__version__
    shown["runtime"] = str(torch.version.hip or torch.version.cuda or "")
    name = str(properties.name).strip() or f"AMD GPU {arch} with {properties.multi_processor_count} CUs"
    return DeviceInfo(backend, name, arch, shown)


class GpuDevice:
    """The current HIP or CUDA device of this process."""

    def __init__(self, index: int = 0) -> None:
        self._device = torch.device("cuda", index)
        torch.cuda.set_device(self._device)
        self._properties: Any = torch.cuda.get_device_properties(self._device)
        self._profiler: Profiler | None = None
        self._flush = CacheFlush(self._device)
        self._peak = PeakMemory(self._device)
        self._within = ""

    @property
    def torch_device(self) -> torch.device:
        return self._device

    def info(self) -> DeviceInfo:
        """The device, and what steers the libraries of this process."""
        info = describe(self._properties)
        return dataclasses.replace(info, properties={**info.properties, **library_state()})

    def buffer(self, content: torch.Tensor, grows: bool = False) -> GuardedStorage:
        """Copies ``content`` (1-D uint8, CPU) into a guarded storage on the GPU."""
        return GuardedStorage(content, self._device, grows)

    def to_host(self, tensor: torch.Tensor) -> torch.Tensor:
        """A CPU copy with the same sizes, strides and dtype."""
        return host_copy(tensor)

    def address(self, tensor: torch.Tensor) -> tuple[int, int]:
        return address(tensor)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self._device)

    def fill_fresh_memory(self, byte: int, n_bytes: Sequence[int]) -> None:
        """Allocates blocks of these sizes, fills and frees them, so that the caching allocator hands them out next.

        The allocator takes the best fit of its free blocks: those freed here are of exactly the right size, and there
        are two of each, for a temporary. Where memory is short the larger blocks are left as they are.
        """
        blocks: list[torch.Tensor] = []
        with self._peak.set_aside():
            for size in sorted([*n_bytes, *n_bytes]):
                try:
                    blocks.append(torch.full((max(int(size), 1),), byte, dtype=torch.uint8, device=self._device))
                except torch.OutOfMemoryError:
                    break
            self.synchronize()
            blocks.clear()

    def observe(self, call: Callable[[], T]) -> tuple[T, Path]:
        """Runs ``call`` once under the profiler, with cold caches.

        ``complete`` says that the profiler saw a known GEMM before, and what it must see around this call.
        """
        with self._peak.set_aside():
            self._flush.allocate()
            if self._profiler is None:
                self._profiler = Profiler(self.synchronize, self._flush.queue)
                self._profiler.test_itself(self._device)
        return self._profiler.observe(call, self._within)

    def time(self, call: Callable[[], object], budget_s: float) -> Timing:
        """Device time between events around single runs, each with cold caches and a host that is ahead of the device.

        The flush of the caches is queued first. It is repeated where the call took longer to issue, so that the time
        has no gaps in which the device waited for the host.
        """
        with self._peak.set_aside():
            timer = EventTimer(self._flush, call)
        return timer.repeat(budget_s)

    def ceilings(self) -> Ceilings:
        """Takes two or three seconds, and leaves the allocator's blocks free."""
        try:
            return measure_ceilings(self._device, lambda call: self.time(call, _CEILING_BUDGET_S))
        finally:
            torch.cuda.empty_cache()

    def begin_case(self, op: str, phase: str) -> None:
        """Starts the count of ``peak_bytes`` anew, from what the audit itself holds."""
        # A backward case runs inside an autograd node of the replay's own, whose ops are not the case's.
        self._within = op.split(".")[0] if phase == "backward" else ""
        self._peak.begin()

    def peak_bytes(self) -> int | None:
        return self._peak.n_bytes

    def free_memory(self) -> None:
        """The flush goes too: a case must not lack its 512 MiB."""
        with self._peak.set_aside():
            self._flush.free()
        torch.cuda.empty_cache()
