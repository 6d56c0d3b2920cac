"""Fills fresh memory of the C allocator, so that an output element that nobody wrote shows the fill byte."""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Mapping

#: From malloc.h: memory handed out holds the complement of the value's low byte, freed memory that byte.
_M_PERTURB = -6


#: A thread keeps up to seven freed blocks of each small size and hands them out as they are, M_PERTURB or not.
_NO_CACHE = "glibc.malloc.tcache_count=0"


def variables_for_filling(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables to start a process with that is to fill its fresh memory, the small blocks too; other C libraries
    ignore them."""
    given = environ.get("GLIBC_TUNABLES", "")
    return {"GLIBC_TUNABLES": f"{given}:{_NO_CACHE}" if given else _NO_CACHE}


@functools.cache
def _mallopt() -> ctypes._NamedFuncPointer | None:
    try:
        library = ctypes.CDLL(None)
        library.gnu_get_libc_version  # noqa: B018  # mallopt exists elsewhere too, M_PERTURB only in glibc
        return library.mallopt
    except (OSError, AttributeError, TypeError):
        return None


def fill_available() -> bool:
    """False where the C library is not glibc: then unwritten elements cannot be told on the CPU."""
    return _mallopt() is not None


def fill_fresh(byte: int) -> bool:
    """From now on memory from malloc and posix_memalign holds ``byte``. False where there is no such switch."""
    mallopt = _mallopt()
    # Bit 8 keeps the value from being 0, which would switch the fill off, when the complement is 0.
    return mallopt is not None and bool(mallopt(_M_PERTURB, (byte ^ 0xFF) | 0x100))


def stop_filling() -> None:
    """Back to memory as it comes."""
    mallopt = _mallopt()
    if mallopt is not None:
        mallopt(_M_PERTURB, 0)
