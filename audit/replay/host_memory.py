"""Whether a case's operands fit this machine at all: a trace from a larger one, or a stranger's, may hold any size.

Linux gives out more memory than there is and kills whoever then uses it, so that asking the allocator is no answer.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from audit.replay.inputs import storages_of
from audit.schema import Case

#: The limit of a container (control groups, version 2); ``max`` where there is none.
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def refusal(case: Case) -> str:
    """Why the operands cannot be made here, or an empty string. Raises InputError for a dtype that torch lacks."""
    needed = sum(storage.nbytes for storage in storages_of(case))
    there = host_memory_bytes()
    if needed <= there:
        return ""
    return f"its operands take {needed / 2**30:,.1f} GiB, and this machine has {there / 2**30:,.1f} GiB"


@cache
def host_memory_bytes() -> int:
    """Physical memory of this machine or container."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        return min(physical, int(_CONTAINER.read_text()))
    except (OSError, ValueError):
        return physical


def available_bytes() -> int:
    """Memory that can be had now without swapping (Linux); all of it where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        [line] = [line for line in lines if line.startswith("MemAvailable:")]
        there = int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        return host_memory_bytes()
    try:
        used = int(_CONTAINER.with_name("memory.current").read_text())
        reclaimable = _reclaimable()
        return min(there, int(_CONTAINER.read_text()) - used + reclaimable)
    except (OSError, ValueError):
        return there


def _reclaimable() -> int:
    """Of what a container has used, the pages of files that are dropped when memory is asked for."""
    for line in _CONTAINER.with_name("memory.stat").read_text().splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file":
            return int(value)
    return 0
