"""A real file, damaged at random: our sentence, or the same trace; never another exception, never much memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audit.errors import UsageError
from audit.opset import extract_values, read_opset, write_opset
from audit.opset.difference import difference
from audit.opset.file import open_opset
from audit.report.opset_rows import case_record, difference_record, opset_record
from audit.report.opset_terminal import render_cases, render_difference, render_opset
from audit.schema import Trace
from tests.opset.conftest import packed, parts_of

QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
#: What a damaged or hostile file may have in the place of something else.
ODD = [
    None, True, -1, 0, 1, 1 << 31, (1 << 63) - 1, 1 << 63, 10**30, -(1 << 63) - 1, 1.5, 1e308, float("nan"),
    float("inf"), "", "..", "../../x", "a" * 10_000, "\0", "\ud800", "\x1b[2J", "inf", "nan", "device", "float32",
    "float99", [], [1], [[]], [[[]]], [None], ["x"], {}, {"x": 1}, {"0": {}}, {"tensor": {}}, {"tensor": []},
    {"float": "nan"}, {"float": 3}, {"complex": [1, 2]}, {"complex": [[], {}]}, {"dtype": "load"}, {"device": 0},
    {"generator": "cpu"}, {"tensor": {"sizes": [1 << 40] * 3, "strides": [0, 0, 0], "dtype": "float32"}},
]  # fmt: skip


class Places:
    """Every place in a JSON tree, in a fixed order."""

    def __init__(self, tree: Any) -> None:
        self.found: list[tuple[Any, Any]] = []
        self._walk(tree)

    def _walk(self, node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            self.found.append((node, key))
            self._walk(node[key])


def outcome(path: Path, folder: Path) -> tuple[Trace, bytes | None] | None:
    """What the file holds, or None where it is refused as it should be; anything else fails the test."""
    try:
        trace = read_opset(path)
        values = extract_values(path, folder)
    except UsageError as error:
        refusal = error
    else:
        return trace, values.read_bytes() if values is not None else None
    assert refusal.slug in ("not-an-opset", "newer-format"), refusal
    assert len(str(refusal)) < 2000
    assert str(refusal).isprintable()
    return None


def outcome_on_the_terminal(path: Path, other: Path) -> str:
    """What the commands that look into a file print of it."""
    opset = open_opset(path)
    found = difference(opset.trace, read_opset(other))
    texts = [
        render_opset(opset, path.name, 100, False),
        render_cases(opset, opset.trace.cases, 100, False),
        render_difference(found, ("a", "b"), 100, False, every=True),
        json.dumps([opset_record(opset), difference_record(found)], allow_nan=False),
        json.dumps([case_record(case, 0) for case in opset.trace.cases], allow_nan=False),
    ]
    return "".join(texts).replace("–", "-").replace("…", "...").replace("µ", "u")


@settings(QUICK, max_examples=60)
@given(data=st.data())
def test_a_flipped_bit_is_noticed_or_changes_nothing(traced: Path, tmp_path: Path, data: st.DataObject) -> None:
    whole = traced.read_bytes()
    at = data.draw(st.integers(0, len(whole) - 1), label="byte")
    flipped = whole[at] ^ data.draw(st.integers(1, 255), label="mask")
    (tmp_path / "m.audit").write_bytes(whole[:at] + bytes([flipped]) + whole[at + 1 :])
    assert outcome(tmp_path / "m.audit", tmp_path) in (None, (read_opset(traced), parts_of(traced)[1]))


@settings(QUICK, max_examples=60)
@given(data=st.data())
def test_a_flipped_byte_of_the_structure_is_noticed_or_changes_nothing(
    traced: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """The same where it hurts most: headers of the archive and of the values, which are a small part of the file."""
    whole = traced.read_bytes()
    header = whole.index(b"values.safetensors")
    marks = [*range(40), *range(header - 30, header + 300), *range(whole.index(b"PK\1\2"), len(whole))]
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4), label="changes")):
        changed[data.draw(st.sampled_from(marks))] = data.draw(st.sampled_from([0, 1, 8, 0x7F, 0x80, 0xFE, 0xFF]))
    (tmp_path / "m.audit").write_bytes(changed)
    assert outcome(tmp_path / "m.audit", tmp_path) in (None, (read_opset(traced), parts_of(traced)[1]))


def test_a_file_cut_anywhere_is_refused(traced: Path, tmp_path: Path) -> None:
    whole = traced.read_bytes()
    cuts = {*range(0, len(whole), 97), *range(100), *range(len(whole) - 300, len(whole))}
    for cut in cuts:
        (tmp_path / "m.audit").write_bytes(whole[:cut])
        assert outcome(tmp_path / "m.audit", tmp_path) is None, cut
    (tmp_path / "m.audit").write_bytes(whole[1:])
    assert outcome(tmp_path / "m.audit", tmp_path) is None


@settings(QUICK, max_examples=80)
@given(data=st.data())
def test_any_value_swapped_for_another_is_refused_or_a_trace_that_can_be_written_again(
    traced: Path, tmp_path: Path, data: st.DataObject
) -> None:
    content, values = parts_of(traced)
    for _ in range(data.draw(st.integers(1, 3), label="swaps")):
        places = Places(content).found
        node, key = places[data.draw(st.integers(0, len(places) - 1), label="place")]
        what = data.draw(st.sampled_from(["odd", "gone", "twice", "other"]))
        if what == "odd":
            node[key] = json.loads(json.dumps(data.draw(st.sampled_from(ODD))))
        elif what == "gone":
            del node[key]
        elif what == "twice" and isinstance(node, list):
            node.append(node[key])
        else:
            other, where = places[data.draw(st.integers(0, len(places) - 1), label="other place")]
            node[key] = json.loads(json.dumps(other[where]))
    found = outcome(packed(tmp_path / "m.audit", content, values), tmp_path)
    if found is not None:
        assert outcome_on_the_terminal(tmp_path / "m.audit", traced).isascii()
        write_opset(tmp_path / "again.audit", found[0], None)
        assert repr(read_opset(tmp_path / "again.audit")) == repr(found[0])


@settings(QUICK, max_examples=60)
@given(data=st.data())
def test_any_header_of_the_values_is_refused_or_the_same(traced: Path, tmp_path: Path, data: st.DataObject) -> None:
    content, values = parts_of(traced)
    assert values is not None
    length = int.from_bytes(values[:8], "little")
    header = json.loads(values[8 : 8 + length])
    places = Places(header).found
    node, key = places[data.draw(st.integers(0, len(places) - 1))]
    node[key] = data.draw(st.sampled_from(ODD))
    encoded = json.dumps(header).encode()
    changed = len(encoded).to_bytes(8, "little") + encoded + values[8 + length :]
    found = outcome(packed(tmp_path / "m.audit", content, changed), tmp_path)
    assert found is None or found[0] == read_opset(traced)


HUNGRY = {
    "brackets": b"[" * (100 << 20),
    "empty lists": b"[" + b"[]," * (30 << 20) + b"[]]",
    "empty objects": b'{"format_version":1,"notes":[' + b"{}," * (30 << 20) + b"{}]}",
    "one text": b'{"format_version":1,"notes":"' + b"x" * (100 << 20) + b'"}',
    "wide text": b'{"format_version":1,"notes":["' + "\U0001f600".encode() + b"x" * (60 << 20) + b'"]}',
    "numbers": b'{"format_version":1,"notes":[' + b"1.5," * (20 << 20) + b"1]}",
}
#: Python itself, the file's bytes, and its text at four bytes a character; without the limits it would be 3 to 10 GiB.
MEMORY_BYTES = 700 << 20
READ = """
import resource, sys
from pathlib import Path
from audit.errors import UsageError
from audit.opset import read_opset
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
try:
    read_opset(Path(sys.argv[1]))
except UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("kind", list(HUNGRY))
def test_a_trace_made_to_fill_the_memory_is_refused_within_little(tmp_path: Path, kind: str, checkout: Path) -> None:
    path = packed(tmp_path / "m.audit", HUNGRY[kind])
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path), str(MEMORY_BYTES)],
        capture_output=True, text=True, timeout=120, check=False, cwd=checkout,
    )  # fmt: skip
    assert done.stdout.strip().endswith("[not-an-opset]"), done.stderr[-500:]
