"""Files of somebody else, or only called so: a named pipe is not waited at, a device is not read without end."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_ordinary(path: Path, follow: bool = True) -> BinaryIO:
    """The file, to be read. Raises OSError for a pipe, a device or a socket, and unless ``follow`` for a link."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags if follow else flags | getattr(os, "O_NOFOLLOW", 0))
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        if stat.S_ISDIR(kind):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is no ordinary file", str(path))
    return os.fdopen(descriptor, "rb")


def read_ordinary(path: Path, max_bytes: int) -> bytes:
    """All that is in it. Raises OSError as ``open_ordinary`` does, and where it has more than ``max_bytes``."""
    with open_ordinary(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it has over {max_bytes:,} bytes, more than such a file has", str(path))
    return content
