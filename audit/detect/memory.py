"""Peak device memory of a case."""

from __future__ import annotations

from collections.abc import Callable

from audit.detect.detector import Evidence
from audit.device.protocol import Device


class MemoryDetector:
    """Reads the device's own count; operands, guard bands and two sets of outputs are part of it."""

    def begin(self, device: Device) -> None:
        pass

    def watch(self, call: Callable[[], object]) -> None:
        pass

    def end(self, device: Device, evidence: Evidence) -> None:
        evidence.peak_bytes = device.peak_bytes()
