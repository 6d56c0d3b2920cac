"""Stored values are read without torch, in small pieces, and a damaged file is one clear sentence."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.report.stored import StoredSpan, StoredValues


def value_file(path: Path, entries: dict[str, object], data: bytes) -> Path:
    header = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)
    return path


def test_a_span_is_read_by_key_and_position(tmp_path: Path) -> None:
    data = struct.pack("<2f3q", 1.5, -2.0, 7, 8, 9)
    entries = {
        "mm-0/0": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "mm-0/1": {"dtype": "I64", "shape": [3], "data_offsets": [8, 32]},
    }
    with StoredValues(value_file(tmp_path / "v.safetensors", entries, data)) as values:
        assert values.span("mm-0", 0, 100) == StoredSpan("float32", struct.pack("<2f", 1.5, -2.0))
        assert values.span("mm-0", 1, 100) == StoredSpan("int64", struct.pack("<3q", 7, 8, 9))
        assert values.span("mm-0", 2, 100) is None
        assert values.span("mm-0", 1, 23) is None  # larger than asked for


def test_a_file_of_the_reference_library_is_read(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="writes the file")
    from safetensors.torch import save_file

    tensor = torch.tensor([1.0, -0.0, float("nan")], dtype=torch.bfloat16)
    save_file({"relu-0/0": tensor}, tmp_path / "v.safetensors")
    with StoredValues(tmp_path / "v.safetensors") as values:
        span = values.span("relu-0", 0, 100)
    assert span is not None
    assert span.dtype == "bfloat16"
    assert span.data == bytes(tensor.view(torch.uint8).tolist())


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 1 << 40]},
        {"dtype": "F32", "shape": [2], "data_offsets": [-8, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]},
        {"dtype": "PICKLE", "shape": [2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": [2], "data_offsets": [True, 8.0]},
        {"dtype": "F32"},
        "not an object",
    ],
)
def test_a_file_with_an_entry_that_lies_is_refused(tmp_path: Path, entry: object) -> None:
    with pytest.raises(UsageError, match=r"\[unreadable-values\]"):
        StoredValues(value_file(tmp_path / "v.safetensors", {"k/0": entry}, bytes(8)))


@pytest.mark.parametrize(
    "content", [b"", b"short", struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 4) + b"[1]x", b"\xff" * 64]
)
def test_what_is_no_value_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "v.safetensors").write_bytes(content)
    with pytest.raises(UsageError, match=r"\[unreadable-values\]"):
        StoredValues(tmp_path / "v.safetensors")
