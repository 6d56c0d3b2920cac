"""JSON that crosses machines: what we write any reader takes, and what a stranger wrote cannot fill the memory.

Python's reader alone takes NaN, integers of any length, halves of surrogate pairs (which nothing can print) and as many
values as the text holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NoReturn

#: Values in one text. Each costs up to some 90 bytes; a trace of 10,000 cases has about two million.
MAX_VALUES = 1 << 24
#: A run of digits that may be an integer beyond 64 bits, which have 19 or 20.
_MANY_DIGITS = re.compile(rb"\d{19}")
#: How a text begins that is none, or is not UTF-8: programs and shells of Windows write such files.
_OTHER_FORMS = (
    (b"\x1f\x8b", "it is compressed; unpack it with gunzip"),
    (b"PK\x03\x04", "it is a ZIP archive; unpack it"),
    (b"\xff\xfe", "it is UTF-16; write it as UTF-8"),
    (b"\xfe\xff", "it is UTF-16; write it as UTF-8"),
    (b"\xef\xbb\xbf", "it begins with a byte order mark; write it as UTF-8 without one"),
)
#: Escapes in order of reading: a backslash, a surrogate pair, half of one.
_ESCAPES = re.compile(r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..|\\u[dD][89a-fA-F]..")
_HALF = 6


def dumps(content: Any) -> str:
    """Compact ASCII. Half a surrogate pair (a file name that was no UTF-8) becomes U+FFFD. Raises ValueError on NaN."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return _ESCAPES.sub(lambda match: _whole(match[0]), text) if "\\ud" in text else text


def _whole(escape: str) -> str:
    return "\\ufffd" if len(escape) == _HALF else escape


def loads(data: bytes, max_values: int = MAX_VALUES) -> Any:
    """The content of ``data``, which is UTF-8. Raises ValueError with what is wrong with it."""
    for beginning, what in _OTHER_FORMS:
        if data.startswith(beginning):
            raise ValueError(what)
    n_values = data.count(b",") + data.count(b"[") + data.count(b"{") + 1
    if n_values > max_values:
        raise ValueError(f"its JSON may hold {n_values} values, more than {max_values}")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8: {data[error.start]:#04x} at byte {error.start}") from error
    if "\\u" in text and any(len(match[0]) == _HALF for match in _ESCAPES.finditer(text)):
        raise ValueError("its JSON has half a surrogate pair")
    # The hook takes as long as all the rest, and is needed for few texts.
    parse_int: Callable[[str], int] | None = _integer if _MANY_DIGITS.search(data) else None
    try:
        return json.loads(text, parse_constant=_refuse, parse_int=parse_int)
    except RecursionError as error:
        raise ValueError("its JSON is nested without end") from error


def _integer(text: str) -> int:
    number = int(text) if len(text) <= 20 else 1 << 64
    if not -(1 << 63) <= number < 1 << 64:
        raise ValueError(f"its JSON has an integer of {len(text)} digits, beyond 64 bits")
    return number


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"its JSON has {name}, which JSON does not know")
