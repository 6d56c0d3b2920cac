"""An ``.audit`` file from a stranger, or damaged on its way, is one sentence and reaches no file but its own."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from audit.codec import encode
from audit.errors import UnfinishedError, UsageError
from audit.opset import extract_values, read_opset, write_opset
from audit.schema import Case, Source, TensorSpec, Trace
from tests.opset.conftest import packed, parts_of

TENSOR = TensorSpec(sizes=(2, 3), strides=(3, 1), dtype="float32", extent=6)
CASE = Case("relu-0123456789ab", "aten::relu.default", (TENSOR,))
TRACE = Trace(Source("script", "x.py"), {}, (CASE,), n_recorded=1)
CONTENT = {"format_version": 1, **encode(TRACE)}


def opset(folder: Path, **fields: Any) -> Path:
    """A file with one case, and ``fields`` of that case replaced in its JSON."""
    content = json.loads(json.dumps(CONTENT))
    content["cases"][0].update(fields)
    return packed(folder / "m.audit", content)


def test_what_was_written_is_what_is_read(traced: Path, tmp_path: Path) -> None:
    values = extract_values(traced, tmp_path)
    write_opset(tmp_path / "again.audit", read_opset(traced), values)
    assert (tmp_path / "again.audit").read_bytes() == traced.read_bytes()
    assert parts_of(traced)[1] == (values.read_bytes() if values else None)


def test_the_same_trace_gives_the_same_bytes_and_a_file_of_ordinary_permissions(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_opset(tmp_path / name, TRACE, None)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    (tmp_path / "plain").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failed_write_leaves_what_was_there_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "m.audit"
    write_opset(path, TRACE, None)
    whole = path.read_bytes()
    with pytest.raises(UnfinishedError, match=r"\[unwritable-output\]$"):
        write_opset(path, TRACE, tmp_path / "no such values")
    assert path.read_bytes() == whole
    assert os.listdir(tmp_path) == ["m.audit"]


def test_a_name_that_was_no_utf8_is_written_so_that_it_can_be_read(tmp_path: Path) -> None:
    name = os.fsdecode(b"m\xff\\ud800.py")
    write_opset(tmp_path / "m.audit", Trace(Source("script", name), {}, (), notes=("\U0001f600",)), None)
    trace = read_opset(tmp_path / "m.audit")
    assert (trace.source.name, trace.notes) == ("m\ufffd\\ud800.py", ("\U0001f600",))


@pytest.mark.parametrize("key", ["../../home/you/.bashrc", "/etc/passwd", "", "a\0b", "a" * 5000, "a b", "..", "-rf"])
def test_a_key_that_would_choose_a_path_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=r"is no plain name \[not-an-opset\]$"):
        read_opset(opset(tmp_path, key=key))


def test_two_cases_of_one_key_are_refused(tmp_path: Path) -> None:
    content = {**CONTENT, "cases": CONTENT["cases"] * 2}
    with pytest.raises(UsageError, match=r"the key 'relu-0123456789ab' is there twice \[not-an-opset\]$"):
        read_opset(packed(tmp_path / "m.audit", content))


@pytest.mark.parametrize(
    "spec",
    [
        {"sizes": [-2, 3]},
        {"strides": [-3, 1]},
        {"offset": -5},
        {"extent": -1},
        {"storage": -1},
        {"sizes": [2, 3, 4]},
        {"sizes": [1] * 200, "strides": [1] * 200},
        {"sizes": [10**400, 3]},
        {"sizes": [1 << 62, 1 << 62], "strides": [1 << 62, 1]},
        {"sizes": [1 << 32, 1 << 32], "strides": [0, 0]},
        {"extent": 1 << 62},
        {"dtype": "float32; import os"},
        {"layout": "__class__"},
        {"sizes": [True, False]},
        {"sizes": [2.0, 3.0]},
        {"sizes": None},
    ],
)
def test_a_tensor_outside_of_any_memory_is_refused(tmp_path: Path, spec: dict[str, Any]) -> None:
    tensor = {"sizes": [2, 3], "strides": [3, 1], "dtype": "float32", **spec}
    with pytest.raises(UsageError, match=r"\[not-an-opset\]$"):
        read_opset(opset(tmp_path, args=[{"tensor": tensor}]))


@pytest.mark.parametrize(
    "fields",
    [
        {"n_calls": 0},
        {"n_calls": -1},
        {"n_calls": 1 << 63},
        {"n_calls": 1.5},
        {"op": "os.system"},
        {"op": "aten::relu default\n"},
        {"args": [{"memory_format": "load"}]},
        {"args": [{"layout": "save"}]},
        {"args": [{"device": "cuda:9999999"}]},
        {"args": [{"generator": "../x"}]},
        {"kwargs": [["dtype", {"dtype": "__dict__"}]]},
        {"args": [[[[[[[[[[[1]]]]]]]]]]]},
        {"values": {"1": {"minimum": 0}}},
        {"values": {"-1": {"minimum": 0}}},
        {"values": {" 0": {"minimum": 0}}},
        {"values": {"٠": {"minimum": 0}}},
        {"values": {"0": {"minimum": "inf"}}},
        {"values": {"0": {"n_nan": -1}}},
        {"values": {"0": {"n_distinct": -1}}},
        {"values": {"0": {"minimum": 2, "maximum": 1}}},
        {"values": {"0": {"zero_fraction": 2.0}}},
        {"values": {"0": {"std": "nan"}}},
        {"settings": [["os.environ", True]]},
        {"settings": [["torch.backends.cudnn.enabled", "x; import os"]]},
        {"settings": [["torch.backends.cudnn.enabled", 3]]},
        {"n_recomputed": 2},
        {"phase": "sideways"},
        {"phase": ["forward"]},
        {"modules": "abc"},
        {"grads": [{"tensor": {"sizes": [-1], "strides": [1], "dtype": "float32"}}]},
    ],
)
def test_what_no_tracer_writes_is_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\[not-an-opset\]$"):
        read_opset(opset(tmp_path, **fields))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[" * 2_000_000, "nested without end"),
        ('{"format_version":1,"x":' * 100_000, "nested without end"),
        (f'{{"format_version":{"1" * 100_000}}}', "an integer of 100000 digits, beyond 64 bits"),
        ('{"format_version":1,"n_recorded":NaN}', "has NaN, which JSON does not know"),
        ('{"format_version":1,"n_recorded":-Infinity}', "has -Infinity"),
        ('{"format_version":1,"source":{"name":"\\ud800"}}', "half a surrogate pair"),
        (b'{"format_version":1,"source":{"name":"\xed\xa0\x80"}}', "no UTF-8: 0xed at byte 38"),
        (b'\xff\xfe{"format_version":1}', "UTF-16"),
        ("", "Expecting value"),
        ("3", "names no format version"),
        ("{}", "names no format version"),
        ('{"format_version":true}', "names no format version"),
        ('{"format_version":0}', "names no format version"),
        ('{"format_version":1}', "Trace lacks the field 'source'"),
    ],
)
def test_json_that_we_do_not_write_is_refused(tmp_path: Path, content: str | bytes, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"m.audit is not an .audit file.*{reason}.* \[not-an-opset\]$"):
        read_opset(packed(tmp_path / "m.audit", content))


def test_a_newer_format_is_said_to_be_one_whatever_else_is_new_in_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"has opset format 2, this rocm-audit reads up to 1 \[newer-format\]$"):
        read_opset(packed(tmp_path / "m.audit", {"format_version": 2, "cases": "elsewhere"}))


def test_what_is_no_ordinary_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.audit")
    for path in (tmp_path / "pipe.audit", Path("/dev/zero"), tmp_path):
        with pytest.raises(UsageError, match=r"\[unreadable-opset\]$"):
            read_opset(path)


def test_a_sentence_has_one_slug_and_no_escape_sequence(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_opset(opset(tmp_path, phase="side\x1b[31mways" * 1000))
    assert str(caught.value).endswith(" [not-an-opset]")
    assert str(caught.value).count(" [") == 1
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_full_disk_is_said_and_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_opset(tmp_path / "m.audit", TRACE, None)
    whole = (tmp_path / "m.audit").read_bytes()
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnfinishedError, match=r"No space left on device; free space, or keep fewer .* \[disk-full\]$"):
        write_opset(tmp_path / "m.audit", TRACE, None)
    assert (tmp_path / "m.audit").read_bytes() == whole
    assert os.listdir(tmp_path) == ["m.audit"]
