"""A real trace and a real run with findings, made once for all parts that need them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent.parent
FAULTS = CHECKOUT / "examples/faults/layer_norm_gradient.py"


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """Removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="rocm-audit-bench-")


@cache
def trace() -> Path:
    """``bert_train.py``, traced: layer norm, attention with masks, embeddings, an optimizer."""
    path = Path(folder().name, "bert.audit")
    _audit("trace", "examples/bert_train.py", "-o", str(path))
    return path


@cache
def run() -> Path:
    """The trace replayed on a simulated device with a fault, so that the run holds findings."""
    path = Path(folder().name, "run")
    _audit("run", str(trace()), "--device", f"sim:{FAULTS}", "-o", str(path), "-q")
    return path


def _audit(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "audit", *arguments], cwd=CHECKOUT, check=True, stdout=subprocess.DEVNULL)
