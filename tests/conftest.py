"""What all tests share: the folder of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def checkout() -> Path:
    """The root of the repository, where Makefile and pyproject.toml are."""
    return Path(__file__).resolve().parent.parent
