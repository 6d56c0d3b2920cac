"""The path an op took: ops, kernels and copies inside, from the device's own observer."""

from __future__ import annotations

from collections.abc import Callable

from audit.detect.detector import Evidence
from audit.device.protocol import Device
from audit.schema import Path


class PathDetector:
    """Runs one extra call under ``Device.observe``; apart from the timed calls, since a profiler slows them."""

    def __init__(self) -> None:
        self._device: Device | None = None
        self._path = Path()

    def begin(self, device: Device) -> None:
        self._device, self._path = device, Path()

    def watch(self, call: Callable[[], object]) -> None:
        if self._device is not None:
            _, self._path = self._device.observe(call)

    def end(self, device: Device, evidence: Evidence) -> None:
        evidence.path = self._path
