"""Whole audits through the command line, on the simulated device, of a small trace made once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import audit

Cli = Callable[..., "subprocess.CompletedProcess[str]"]

ROOT = Path(audit.__file__).resolve().parents[1]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

PROGRAM = """
import torch
torch.manual_seed(0)
a, b = torch.randn(8, 16), torch.randn(16, 4)
for _ in range(3):
    torch.mm(a, b)
a.exp()
a.softmax(-1)
a.sum(0)
torch.cat([a, a]).topk(3)
"""


@pytest.fixture(scope="session")
def cli() -> Cli:
    """Runs ``rocm-audit`` in a process of its own."""

    def run(*arguments: object, cwd: Path | None = None, **options: object) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "audit", *map(str, arguments)],
            cwd=cwd,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            **{"env": ENVIRONMENT, "timeout": 280, **options},  # type: ignore[call-overload]
        )

    return run


@pytest.fixture(scope="session")
def device(simulates: bool) -> str:
    """A healthy device for what no fault is needed for: ``sim``, or ``cpu`` where this torch (2.9) has no ``sim``."""
    return "sim" if simulates else "cpu"


@pytest.fixture(scope="session")
def opset(cli: Cli, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``m.audit`` of ``PROGRAM``: mm, exp, softmax, sum, cat, topk and the set-up, about ten cases."""
    folder = tmp_path_factory.mktemp("opset")
    (folder / "prog.py").write_text(PROGRAM)
    done = cli("trace", folder / "prog.py", "-o", folder / "m.audit")
    assert done.returncode == 0, done.stderr
    return folder / "m.audit"
