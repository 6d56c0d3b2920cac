"""What all tests share: the folder of this checkout, and whether this torch can simulate a device."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser import browser

__all__ = ["browser"]  # a fixture: one Chromium for all tests of pages

#: Tests measure; what a test of the hour before has measured would hide what it looks for.
os.environ["AUDIT_CACHE"] = "off"


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository, where Makefile and pyproject.toml are."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def traces(checkout: Path) -> Path:
    """The folder of torch.profiler traces of real GPUs, which lies beside the repository where it is there at all."""
    folder = checkout.parent / "shared" / "data" / "traces"
    if not folder.is_dir():
        pytest.skip(f"the real traces are not here: {folder.parent.parent.name}/data/traces beside the repository")
    return folder


@pytest.fixture(scope="session")
def fresh_python(checkout: Path) -> Callable[[str], str]:
    """Runs source in a new interpreter; what it printed. For what torch can be told only once in a process."""

    def run(source: str) -> str:
        command = [sys.executable, "-c", textwrap.dedent(source)]
        return subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout.strip()

    return run


@pytest.fixture(scope="session")
def simulates() -> bool:
    """Whether this torch can have the simulated device, by its version: 2.9 cannot, 2.10 is the first that can."""
    import torch

    return tuple(int(number) for number in torch.__version__.split(".")[:2]) >= (2, 10)


@pytest.fixture(scope="session")
def simulated_device(simulates: bool) -> None:
    """Skips a test of the simulated device where this torch cannot have one."""
    if not simulates:
        pytest.skip("the simulated device needs torch 2.10 or newer")
