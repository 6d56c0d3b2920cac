"""The most memory that a case had allocated on a GPU at once, without what the audit holds for itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class PeakMemory:
    """Counts from ``begin`` on, by the caching allocator's own statistics."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._held_bytes = 0
        self._before = 0

    def begin(self) -> None:
        """What is allocated now is not the case's."""
        self._before, self._held_bytes = 0, self._allocated()
        torch.cuda.reset_peak_memory_stats(self._device)

    @contextmanager
    def set_aside(self) -> Iterator[None]:
        """What is allocated or freed meanwhile is the audit's."""
        self._before, allocated = self.n_bytes, self._allocated()
        try:
            yield
        finally:
            self._held_bytes += self._allocated() - allocated
            torch.cuda.reset_peak_memory_stats(self._device)

    @property
    def n_bytes(self) -> int:
        return max(self._before, int(torch.cuda.max_memory_allocated(self._device)) - self._held_bytes)

    def _allocated(self) -> int:
        return int(torch.cuda.memory_allocated(self._device))
