"""The private folder that the auditor and its children exchange spool files in."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

#: Spool files go to memory only where this much would still be free four times over.
_ROOM_BYTES = 1 << 30


def create_folder() -> Path:
    """A new folder, in memory (/dev/shm) where that is roomy, else where temporary files go.

    Folders of audits that were killed are removed on the way: their names say which process they belonged to.
    """
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 4 * _ROOM_BYTES
    parent = memory if roomy else Path(tempfile.gettempdir())
    for folder in parent.glob("rocm-audit-spool-*-*"):
        owner = folder.name.split("-")[3]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and folder.stat().st_uid == os.getuid():
            shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"rocm-audit-spool-{os.getpid()}-", dir=parent))
