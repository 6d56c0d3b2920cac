"""What the op wrote to file descriptor 2: MIOpen, hipBLASLt and the HIP runtime complain there, past Python."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from audit.detect.detector import Evidence
from audit.device.protocol import Device

#: How much of one case's output is kept, from its end.
TAIL_BYTES = 8192


class StderrDetector:
    """Reads back what this process's fd 2, which must be an appending file (``redirect``), got during a case."""

    def begin(self, device: Device) -> None:
        os.ftruncate(2, 0)

    def watch(self, call: Callable[[], object]) -> None:
        pass

    def end(self, device: Device, evidence: Evidence) -> None:
        size = os.fstat(2).st_size
        if size:
            tail = os.pread(2, TAIL_BYTES, max(0, size - TAIL_BYTES))
            evidence.stderr = tail.decode(errors="replace").strip()


def redirect(path: Path) -> None:
    """Points fd 1 and fd 2 of this process at ``path``; the auditor reads it there if the process dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
