"""What is written can be read by any JSON reader; what is read fits 64 bits, UTF-8 and the memory."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.strict_json import dumps, loads

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(JSON)
def test_what_is_written_is_read_back(content: object) -> None:
    assert loads(dumps(content).encode()) == content
    assert json.loads(dumps(content)) == content


@given(st.text(st.characters(codec=None, categories=("Cs", "Lu", "Po"))))
def test_no_half_of_a_surrogate_pair_is_written(text: str) -> None:
    json.loads(dumps([text]))[0].encode("utf-8")
    loads(dumps([text]).encode())


def test_a_backslash_before_ud800_is_no_surrogate() -> None:
    assert loads(b'["\\\\ud800", "\\ud83d\\ude00"]') == ["\\ud800", "\U0001f600"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'"\\ud800"', "half a surrogate pair"),
        (b'"\\\\\\uDFFF"', "half a surrogate pair"),
        (b"[NaN]", "NaN"),
        (b"18446744073709551616", "beyond 64 bits"),
        (b"-9223372036854775809", "beyond 64 bits"),
        (b'{"a":1} x', "Extra data"),
        (b"\xef\xbb\xbf1", "byte order mark"),
        ("1".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8b\x08", "gunzip"),
        (b"PK\x03\x04", "ZIP archive"),
        (b'"\xe4"', "no UTF-8: 0xe4 at byte 1"),
    ],
)
def test_what_we_do_not_write_is_refused(text: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        loads(text)


def test_the_number_of_values_is_bounded_before_any_is_made() -> None:
    assert loads(b"[1,2,3]", max_values=4) == [1, 2, 3]
    with pytest.raises(ValueError, match="may hold 5 values, more than 4"):
        loads(b"[1,2,[3]]", max_values=4)
