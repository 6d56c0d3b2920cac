"""The archive has one form: whatever else a ZIP file may be is refused before a byte of it is unpacked."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.errors import UsageError
from audit.opset import extract_values, read_opset, write_opset
from audit.opset.archive import ArchiveError, members_of, read_member
from audit.opset.tensors import write_tensors
from tests.opset.test_file import TRACE, packed

#: Where fields of a directory entry lie behind its signature.
FLAGS, METHOD, CRC, PACKED, SIZE, START = 8, 10, 16, 20, 24, 42


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A small file with values."""
    with (tmp_path / "v").open("wb") as file:
        write_tensors(file, {"relu-0123456789ab/0": ("F32", 6)}, [b"\0" * 24])
    write_opset(tmp_path / "m.audit", TRACE, tmp_path / "v")
    assert read_opset(tmp_path / "m.audit") == TRACE
    return tmp_path / "m.audit"


def refused(path: Path, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"m.audit is not an .audit file.*{reason}.* \[not-an-opset\]$"):
        read_opset(path)


def changed(path: Path, entry: int, field: int, value: bytes) -> None:
    """Puts ``value`` into a field of a directory entry."""
    content = path.read_bytes()
    at = -1
    for _ in range(entry + 1):
        at = content.index(b"PK\1\2", at + 1)
    path.write_bytes(content[: at + field] + value + content[at + field + len(value) :])


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (FLAGS, b"\1\0", "encrypted or of a form"),
        (FLAGS, b"\10\0", "encrypted or of a form"),
        (METHOD, b"\10\0", "is compressed"),
        (METHOD, b"\x63\0", "is compressed"),
        (CRC, b"\1\2\3\4", "is not what the directory says"),
        (SIZE, b"\xf0\xff\xff\xff", "has .* bytes for 4294967280"),
        (PACKED, b"\xf0\xff\xff\xff" * 2, "is not what the directory says"),
        (SIZE, b"\xff\xff\xff\xff", "lacks a size"),
        (START, b"\1\0\0\0", "begins at 1, expected"),
        (START, b"\0\0\0\0", "begins at 0, expected"),
        (START, b"\xff\xff\xff\x7f", "begins at 2147483647"),
    ],
)
def test_a_directory_entry_that_lies_is_refused(whole: Path, field: int, value: bytes, reason: str) -> None:
    changed(whole, 1, field, value)
    refused(whole, reason)


def test_members_over_one_another_are_refused(whole: Path) -> None:
    """Two names for the same bytes, as the archives that unpack to petabytes have it."""
    content = whole.read_bytes()
    first = content.index(b"PK\1\2")
    second = content.index(b"PK\1\2", first + 1)
    end = content.index(b"PK\5\6")
    twice = content[first:second] * 2
    whole.write_bytes(content[:first] + twice + end_record(2, len(twice), first))
    assert end > second
    refused(whole, "is there twice")
    other = content[first:second].replace(b"trace.json", b"trace.jsoM")
    whole.write_bytes(content[:first] + content[first:second] + other + end_record(2, len(twice), first))
    refused(whole, "begins at 0, expected")


def end_record(n: int, size: int, start: int) -> bytes:
    return struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, n, n, size, start, 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda content: b"#!/bin/sh\n" + content, "its directory is not where"),
        (lambda content: content + b"\0", "does not end as an archive"),
        (lambda content: content[:-2] + b"\3\0abc", "does not end as an archive"),
        (lambda content: content[:-2] + b"\3\0", "does not end as an archive without a comment"),
        (lambda content: content[:-22] + end_record(60000, 50, 0), "has 60000 entries"),
        (lambda content: content[:-22] + end_record(2, 1 << 30, 0), "entries in 1073741824 bytes"),
        (lambda content: content[:-22] + end_record(2, 0xFFFFFFFF, 0), "ZIP64 end record"),
        (lambda content: content[:100], "does not end as an archive"),
        (lambda content: content[:10], "it has 10 bytes"),
        (lambda content: b"", "it has 0 bytes"),
    ],
)
def test_an_archive_of_another_form_is_refused(whole: Path, change: Callable[[bytes], bytes], reason: str) -> None:
    whole.write_bytes(change(whole.read_bytes()))
    refused(whole, reason)


def test_bytes_between_the_members_are_refused(whole: Path) -> None:
    with zipfile.ZipFile(whole) as archive:
        trace, values = (archive.read(name) for name in ("trace.json", "values.safetensors"))
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("trace.json", trace)
        assert archive.fp is not None
        archive.fp.write(b"hidden")
        archive.start_dir = archive.fp.tell()
        archive.writestr("values.safetensors", values)
    refused(whole, "begins at .*, expected")


def test_bytes_before_the_directory_are_refused(whole: Path) -> None:
    content = whole.read_bytes()
    start = content.index(b"PK\1\2")
    size = len(content) - 22 - start
    whole.write_bytes(content[:start] + b"hidden" + content[start:-22] + end_record(2, size, start + 6))
    refused(whole, f"6 bytes at {start} belong to no member")


def test_a_member_that_reaches_into_the_directory_is_refused(whole: Path) -> None:
    """Its size is a lie in both headers, so that they agree."""
    content = whole.read_bytes()
    local = content.index(b"PK\3\4", 4)
    for place in (local + 18, local + 22):
        content = content[:place] + b"\xff\xff\0\0" + content[place + 4 :]
    whole.write_bytes(content)
    changed(whole, 1, PACKED, b"\xff\xff\0\0" * 2)
    refused(whole, "has 65535 bytes, and .* are there")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", ["../../etc/cron.d/x", "/etc/passwd", "values.safetensors/x", "trace.json\0", "x.pkl"])
def test_members_of_other_names_are_refused_and_never_written(whole: Path, name: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(whole, "a") as archive:
        archive.writestr(name, b"x")
    before = sorted(tmp_path.rglob("*"))
    refused(whole, "does not belong there|is there twice")
    with pytest.raises(UsageError, match=r"\[not-an-opset\]$"):
        extract_values(whole, tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_damaged_member_is_one_sentence(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    whole.write_bytes(content.replace(b"\0" * 24, b"\1" * 24))
    with pytest.raises(UsageError, match=r"values.safetensors is damaged: its checksum is .* \[not-an-opset\]$"):
        extract_values(whole, tmp_path)
    whole.write_bytes(content.replace(b"relu", b"silu", 1))
    refused(whole, "trace.json is damaged: its checksum is")


def test_a_small_file_that_unpacks_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.audit"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive,
        archive.open("trace.json", "w", force_zip64=True) as member,
    ):
        for _ in range(64):
            member.write(b" " * (1 << 20))
    assert path.stat().st_size < 1 << 17
    refused(path, "is compressed .*repack with `zip -0 -X`")


def test_a_trace_of_more_than_any_model_has_is_refused_unread(tmp_path: Path) -> None:
    """A gigabyte of brackets, as a file with a hole: it would take a gigabyte to read."""
    path, size = tmp_path / "m.audit", 1 << 30
    name = b"trace.json"
    local = struct.pack("<4s5H3L2H", b"PK\3\4", 20, 0, 0, 0, 33, 0, size, size, len(name), 0) + name
    entry = struct.pack("<4s6H3L5H2L", b"PK\1\2", 20, 20, 0, 0, 0, 33, 0, size, size, len(name), 0, 0, 0, 0, 0, 0)
    with path.open("wb") as file:
        file.write(local)
        file.seek(len(local) + size)
        file.write(entry + name + end_record(1, len(entry + name), len(local) + size))
    refused(path, "trace.json has 1073741824 bytes, more than 134217728")


def test_an_archive_over_four_gigabytes_is_read_as_zipfile_writes_it(tmp_path: Path) -> None:
    """Its sizes are in ZIP64 fields. The values are a hole in the file, so this takes no time and no disk."""
    path, size = tmp_path / "big", 5 << 30
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr("trace.json", b"{}")
        info = zipfile.ZipInfo("values.safetensors")
        with archive.open(info, "w", force_zip64=True) as member:
            assert archive.fp is not None
            archive.fp.seek(size, 1)
            member._file_size = member._compress_size = size  # type: ignore[attr-defined]
    with path.open("rb") as file:
        members = members_of(file)
        assert members["values.safetensors"].size == size
        assert read_member(file, members["trace.json"], 100) == b"{}"
        with pytest.raises(ArchiveError, match="has 5368709120 bytes, more than 1048576"):
            read_member(file, members["values.safetensors"], 1 << 20)


def test_files_of_other_tools_that_do_not_compress_are_read(tmp_path: Path) -> None:
    assert packed(tmp_path / "m.audit", {"format_version": 1, "source": {"kind": "script", "name": "x"}})
    with pytest.raises(UsageError, match="Trace lacks the field 'environment'"):
        read_opset(tmp_path / "m.audit")
