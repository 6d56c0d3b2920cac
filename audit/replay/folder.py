"""The private folder that the auditor and its children exchange spool files in."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

#: Spool files go to memory only where this much would still be free four times over.
_ROOM_BYTES = 1 << 30
_PREFIX = "rocm-audit-spool-"
_LOCK = "owner.lock"


class SpoolFolder:
    """A new folder, in memory (/dev/shm) where that is roomy, else where temporary files go.

    Its owner holds a file lock in it, which the kernel lets go when the owner dies; the next audit then removes the
    folder. A lock and not a process number, since containers that share /dev/shm do not share those.
    """

    def __init__(self) -> None:
        memory = Path("/dev/shm")
        roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 * _ROOM_BYTES
        parent = memory if roomy else Path(tempfile.gettempdir())
        remove_abandoned(parent)
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
        taking = self.path / "taking.lock"
        self._lock = os.open(taking, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        taking.rename(self.path / _LOCK)  # seen by others only when it is held

    def remove(self) -> None:
        """Deletes the folder; safe to call twice."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1


def remove_abandoned(parent: Path) -> None:
    """Deletes the spool folders in ``parent`` whose owners are dead."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            descriptor = os.open(lock, os.O_RDWR)
        except OSError:  # another user's, or just removed
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
        except BlockingIOError:
            continue  # its owner lives
        finally:
            os.close(descriptor)
