"""Fresh memory of a child process shows the fill byte in blocks of every size."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from audit.device.hostmemory import fill_available, variables_for_filling
from audit.device.places import places

#: Blocks of a size come and go, as in a worker; then one is handed out that must hold the fill byte.
NOT_FILLED = """
import torch
from audit.device import hostmemory

missed = []
for n in range(4, 257, 4):
    for byte in (0x7B, 0x3C):
        for _ in range(2):
            blocks = [torch.ones(n) for _ in range(8)]
            del blocks
        hostmemory.fill_fresh(byte)
        fresh = torch.empty(n)
        missed += [n] * bool((fresh.view(torch.uint8) != byte).any())
        hostmemory.stop_filling()
print(missed)
"""


@pytest.mark.skipif(not fill_available(), reason="the C library is not glibc")
def test_small_blocks_that_were_used_before_are_filled_too() -> None:
    """glibc's cache of a thread hands blocks of up to 1,032 bytes out as they are: half of them were missed."""
    [place] = places("sim")
    command = [sys.executable, "-c", NOT_FILLED]
    environment = {**os.environ, **place.environment}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_settings_of_the_users_own_are_kept() -> None:
    given = variables_for_filling({"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"})
    assert given == {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1:glibc.malloc.tcache_count=0"}
