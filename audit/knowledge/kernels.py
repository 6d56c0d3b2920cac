"""Kernel names to the library that supplied them, and what they say about the path an op took."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from audit.knowledge.tables import rows


@dataclass(frozen=True)
class KernelClass:
    """What a kernel name tells. ``library`` None: not known. ``signal``: ``naive``, ``slow``, ``layout``, ``native``,
    ``host_sync``, ``host_copy`` or ``none``. A name tells who supplied the kernel, not which API asked for it."""

    library: str | None
    category: str
    signal: str
    meaning: str
    source: str

    @property
    def family(self) -> str:
        """The library without the part of it: ``MIOpen`` of ``MIOpen (layout transform)``, ``unknown`` of None."""
        return "unknown" if self.library is None else self.library.partition(" (")[0]


UNKNOWN_KERNEL = KernelClass(None, "unknown", "none", "", "")


@dataclass(frozen=True)
class _Pattern:
    priority: int
    regex: re.Pattern[str]
    kernel: KernelClass


@cache
def _patterns() -> tuple[_Pattern, ...]:
    table = [
        _Pattern(
            int(row["priority"]),
            re.compile(row["regex"]),
            KernelClass(
                None if row["library"].startswith("unknown") else row["library"],
                row["category"],
                row["fallback_signal"],
                row["meaning"],
                row["source"],
            ),
        )
        for row in rows("kernel_patterns.csv")
    ]
    return tuple(sorted(table, key=lambda pattern: -pattern.priority))  # stable: file order inside one priority


@lru_cache(maxsize=4096)
def classify_kernel(name: str) -> KernelClass:
    """The first pattern, by descending priority, that is found in ``name``; ``UNKNOWN_KERNEL`` where none is.

    The last pattern catches the words gemm and matmul; it knows no library, so its kernels count as unknown too.
    """
    return next((pattern.kernel for pattern in _patterns() if pattern.regex.search(name)), UNKNOWN_KERNEL)
