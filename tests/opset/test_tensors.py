"""The header of a value file is held to the file's length and to the cases before a value is read."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file

from audit.errors import UsageError
from audit.opset import extract_values, read_opset
from audit.opset.tensors import write_tensors
from tests.opset.test_file import CONTENT, packed

NAME = "relu-0123456789ab/0"
ENTRY = {"dtype": "F32", "shape": [6], "data_offsets": [0, 24]}


def value_file(header: Any, data: bytes = b"\0" * 24) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(encoded)) + encoded + data


def test_what_is_written_is_what_safetensors_reads(tmp_path: Path) -> None:
    with (tmp_path / "v").open("wb") as file:
        write_tensors(
            file, {"a/0": ("I64", 2), "b/1": ("F16", 0), "c/0": ("U8", 3)}, [struct.pack("<2q", 7, -7), b"abc"]
        )
    read = load_file(tmp_path / "v")
    assert {name: tensor.tolist() for name, tensor in read.items()} == {"a/0": [7, -7], "b/1": [], "c/0": [97, 98, 99]}


def test_the_values_of_the_cases_are_accepted(tmp_path: Path) -> None:
    path = packed(tmp_path / "m.audit", CONTENT, value_file({NAME: ENTRY}))
    assert len(read_opset(path).cases) == 1
    values = extract_values(path, tmp_path)
    assert values is not None
    assert values.read_bytes() == value_file({NAME: ENTRY})


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (b"", "a value file of 0 bytes"),
        (b"\0" * 7, "a value file of 7 bytes"),
        (struct.pack("<Q", 1 << 62), "cannot have a header of 4611686018427387904"),
        (struct.pack("<Q", 99_000_000) + b"{}", "cannot have a header of 99000000"),
        (value_file(b"[" * 1000), "is no object|nested|Expecting"),
        (value_file([]), "is no object"),
        (value_file({NAME: {**ENTRY, "dtype": "F31"}}), "not of the expected form"),
        (value_file({NAME: {**ENTRY, "shape": [2, 3]}}), "not of the expected form"),
        (value_file({NAME: {**ENTRY, "shape": [1 << 62], "data_offsets": [0, 1 << 64]}}), "beyond 64 bits"),
        (value_file({NAME: {**ENTRY, "shape": [-6]}}), "not of the expected form"),
        (value_file({NAME: {**ENTRY, "data_offsets": [24, 0]}}), "not of the expected form"),
        (value_file({NAME: {**ENTRY, "data_offsets": [0, 23]}}), "not of the expected form"),
        (value_file({NAME: {**ENTRY, "shape": [True]}}, b"\0" * 4), "not of the expected form"),
        (value_file({NAME: {**ENTRY, "data_offsets": [4, 28]}}, b"\0" * 28), "begins at 4, expected 0"),
        (value_file({NAME: ENTRY, "x/0": ENTRY}), "begins at 0, expected 24"),
        (value_file({NAME: ENTRY}, b"\0" * 23), "end at 24, the value file at 23"),
        (value_file({NAME: ENTRY}, b"\0" * 25), "end at 24, the value file at 25"),
        (value_file({NAME: {**ENTRY, "extra": 1}}), "not of the expected form"),
        (value_file({"__metadata__": {"format": "pt"}, NAME: ENTRY}), "not of the expected form"),
        (value_file({"../../x/0": ENTRY}), "belongs to no case"),
        (value_file({"relu-0123456789ab/1": ENTRY}), "belongs to no case"),
        (value_file({"relu-0123456789ab/+0": ENTRY}), "belongs to no case"),
        (value_file({"relu-0123456789ab/": ENTRY}), "belongs to no case"),
        (value_file({NAME: {**ENTRY, "dtype": "I32"}}), "has 6 elements of int32, its operand 6 of float32"),
        (value_file({NAME: {**ENTRY, "shape": [5], "data_offsets": [0, 20]}}, b"\0" * 20), "has 5 elements of float32"),
    ],
)
def test_values_that_are_not_those_of_the_cases_are_refused(tmp_path: Path, values: bytes, reason: str) -> None:
    path = packed(tmp_path / "m.audit", CONTENT, values)
    with pytest.raises(UsageError, match=rf"m.audit is not an .audit file.*({reason}).* \[not-an-opset\]$"):
        read_opset(path)
