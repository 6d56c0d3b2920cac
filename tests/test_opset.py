"""An ``.audit`` file from a stranger, or damaged on its way, is one sentence and reaches no file but its own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from audit.codec import encode
from audit.errors import UsageError
from audit.opset import extract_values, read_opset
from audit.schema import Case, Source, TensorSpec, Trace

TENSOR = TensorSpec(sizes=(2, 3), strides=(3, 1), dtype="float32", extent=6)


def opset(folder: Path, case: Case | None = None, **fields: Any) -> Path:
    """A file with one case, and ``fields`` of that case replaced in its JSON."""
    case = case or Case("relu-0123456789ab", "aten::relu.default", (TENSOR,))
    content = {"format_version": 1, **encode(Trace(Source("script", "x.py"), {}, (case,), n_recorded=1))}
    content["cases"][0].update(fields)
    path = folder / "m.audit"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("trace.json", json.dumps(content))
        archive.writestr("values.safetensors", b"\0" * 100)
    return path


def test_a_case_as_the_tracer_writes_it_is_read(tmp_path: Path) -> None:
    assert read_opset(opset(tmp_path)).cases[0].args == (TENSOR,)


@pytest.mark.parametrize("key", ["../../home/you/.bashrc", "/etc/passwd", "", "a\0b", "a" * 5000, "a b"])
def test_a_key_that_would_choose_a_path_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=r"is no plain name, or is there twice \[not-an-opset\]$"):
        read_opset(opset(tmp_path, key=key))


@pytest.mark.parametrize(
    "spec",
    [
        {"sizes": [-2, 3]},
        {"strides": [-3, 1]},
        {"offset": -5},
        {"extent": -1},
        {"sizes": [2, 3, 4]},
        {"sizes": [10**400, 3]},
        {"sizes": [1 << 62, 1 << 62], "strides": [1 << 62, 1]},
    ],
)
def test_a_tensor_outside_of_any_memory_is_refused(tmp_path: Path, spec: dict[str, Any]) -> None:
    tensor = {"sizes": [2, 3], "strides": [3, 1], "dtype": "float32", **spec}
    with pytest.raises(UsageError, match=r"\[not-an-opset\]$"):
        read_opset(opset(tmp_path, args=[{"tensor": tensor}]))


def test_a_damaged_member_is_one_sentence(tmp_path: Path) -> None:
    path = opset(tmp_path)
    whole = path.read_bytes()
    at = whole.index(b"PK\x01\x02")  # the table of members: flags at 8, compression at 10
    for place, value in ((8, 1), (10, 99)):
        path.write_bytes(whole[: at + place] + bytes([value]) + whole[at + place + 1 :])
        with pytest.raises(UsageError, match=r"\[not-an-opset\]$"):
            read_opset(path)
    path.write_bytes(whole.replace(b"\0" * 100, b"\1" * 100))
    with pytest.raises(UsageError, match=r"Bad CRC-32 for file 'values.safetensors' \[not-an-opset\]$"):
        extract_values(path, tmp_path)


def test_a_small_file_that_unpacks_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("audit.opset._MAX_TRACE_BYTES", 1 << 20)
    path = tmp_path / "m.audit"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("trace.json", "w", force_zip64=True) as member,
    ):
        for _ in range(2):
            member.write(b" " * (1 << 20))
    with pytest.raises(UsageError, match=r"trace.json has 2097152 bytes \[not-an-opset\]$"):
        read_opset(path)


def test_a_sentence_has_one_slug(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_opset(opset(tmp_path, phase="sideways"))
    assert str(caught.value).count("[") == 1
