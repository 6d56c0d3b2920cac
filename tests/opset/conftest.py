"""A real ``.audit`` file of a small traced program, and the means to take one apart and put it together wrongly."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace with values: a training step of a small model, index tensors, named constants, several dtypes."""
    import torch

    import audit

    path = tmp_path_factory.mktemp("traced") / "m.audit"
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(10, 4), torch.nn.LayerNorm(4), torch.nn.Linear(4, 3))
    with audit.trace(path):
        model(torch.tensor([[1, 2, 9], [0, 0, 3]])).sum().backward()
        torch.ones(3, 4, dtype=torch.bfloat16).to(torch.float16).t().contiguous().div(2.0, rounding_mode="floor")
        torch.randn(4, dtype=torch.complex64).conj().add(1j)
    return path


def parts_of(path: Path) -> tuple[dict[str, Any], bytes | None]:
    """``trace.json`` as plain JSON, and the bytes of ``values.safetensors``."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        values = archive.read("values.safetensors") if "values.safetensors" in names else None
        return json.loads(archive.read("trace.json")), values


def packed(path: Path, content: Any, values: bytes | None = None) -> Path:
    """A well-formed archive of any content: text and bytes as they are, all else as JSON that Python writes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", content if isinstance(content, (str, bytes)) else json.dumps(content))
        if values is not None:
            archive.writestr("values.safetensors", values)
    return path
