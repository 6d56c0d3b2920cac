"""The events or nodes of a profiler's trace, one at a time: of a file of any length, compressed, cut off or hostile.

Of the readers of JSON streams, ijson is the best known. Its C backend is about as fast as this (0.10 against 0.09 s for
5.9 MB), its pure Python one 25 times slower, and both hold a value of any length in memory and lose what a cut-off file
began. So events are cut out of a bounded piece of text, each by the scanner of ``json``.
"""

from __future__ import annotations

import codecs
import gzip
import json
import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from audit.errors import UsageError
from audit.ordinary_file import open_ordinary

_PIECE_BYTES = 1 << 20
#: One event. Fused optimizers name a thousand tensors in some 200 KB.
_MAX_VALUE_CHARS = 1 << 24
#: Decompressed. A step of a large model with Python stacks has a few GB.
_MAX_BYTES = 1 << 35
#: Text for each byte of a compressed file, from so much text on. Real traces have 15 to 40; only what repeats itself
#: without end has more.
_MAX_RATIO, _FREE_BYTES = 250, 1 << 28
#: ``-Infinity``, or an escape of twelve characters.
_LONGEST_WORD = 12
#: What stands between events, mostly without a blank.
_MARKS = frozenset("{[,:]}")
_BLANK = re.compile(r"[ \t\r\n]*")
_GZIP = b"\x1f\x8b"


class EventStream:
    """The events of ``path``, and what stands beside them. ``array`` is the name of the list that they are in.

    ``properties`` and ``cut_off`` (how the file ends too early; empty where it does not) are known when all events
    were read. Raises UsageError for a file that cannot be read or is no trace; events before the end of a cut-off file
    are given.
    """

    def __init__(self, path: Path, array: str = "traceEvents") -> None:
        self.path = path
        self._array = array
        self.properties: dict[str, Any] = {}
        self.cut_off = ""
        self.n_events = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        try:
            with open_ordinary(self.path) as file:
                yield from self._read(_Text(self.path, file))
        except OSError as error:
            raise UsageError(f"cannot read {self.path}: {error.strerror or error}", "unreadable-recording") from error

    def _read(self, text: _Text) -> Iterator[dict[str, Any]]:
        try:
            if text.next_char() == "[":
                yield from self._events(text)
            else:
                yield from self._members(text)
            text.expect_end()
        except _CutOffError as error:
            self.cut_off = f"the file ends too early, after {self.n_events} events{error}"
        except (ValueError, RecursionError) as error:
            what = "nested without end" if isinstance(error, RecursionError) else str(error)
            raise UsageError(
                f"{self.path} is no trace that can be read: after {self.n_events} events, {what}; record it again",
                "unreadable-recording",
            ) from error

    def _members(self, text: _Text) -> Iterator[dict[str, Any]]:
        """The members of the outermost object: the events, and the rest as properties."""
        text.expect("{")
        n_kept = 0
        while text.next_char() != "}":
            start = text.place
            name = text.value()
            text.expect(":")
            if name == self._array and text.next_char() == "[":
                yield from self._events(text)
            else:
                self.properties[str(name)] = text.value()
                n_kept += text.place - start
                if n_kept > _MAX_VALUE_CHARS:
                    raise ValueError(f"there are over {_MAX_VALUE_CHARS} characters beside them")
            if text.next_char() != "}":
                text.expect(",")
        text.expect("}")

    def _events(self, text: _Text) -> Iterator[dict[str, Any]]:
        """Chrome's format allows a comma behind the last event, and some writers leave it."""
        text.expect("[")
        while text.next_char() != "]":
            event = text.value()
            if not isinstance(event, dict):
                raise ValueError(f"expected an event, got {type(event).__name__}")
            self.n_events += 1
            yield event
            if text.next_char() != "]":
                text.expect(",")
        text.expect("]")


class _CutOffError(Exception):
    """The text ends inside a value; ``str`` says why, where the reason is not the end itself."""


class _Text:
    """Text of unknown length behind a place in it. Raises ValueError for what is no JSON, _CutOffError at its end."""

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        start = file.read(2)
        file.seek(0)
        self._path = path
        self._file_bytes = os.fstat(file.fileno()).st_size
        # One step of decompression at a time: ``read`` would lose what it has when it meets an early end.
        self._read = gzip.GzipFile(fileobj=file).read1 if start == _GZIP else file.read
        # Kernel names of some profilers are cut in the middle of a character.
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        # A name may have a line break in it, which JSON does not allow.
        self._scan = json.JSONDecoder(strict=False).raw_decode
        self._text = ""
        self._at = 0
        self._n_passed = 0
        self._n_bytes = 0
        self._ended = False
        self._damage = ""

    @property
    def place(self) -> int:
        """Characters read so far."""
        return self._n_passed + self._at

    def next_char(self) -> str:
        """The next character that is no blank, which stays the next."""
        if self._at < len(self._text) and self._text[self._at] in _MARKS:
            return self._text[self._at]
        while True:
            match = _BLANK.match(self._text, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._text):
                return self._text[self._at]
            self._more()

    def expect(self, char: str) -> None:
        found = self.next_char()
        if found != char:
            raise ValueError(f"expected {char!r}, got {found!r}")
        self._at += 1

    def expect_end(self) -> None:
        """Nothing stands behind what was read; two traces in one file are no trace."""
        try:
            found = self.next_char()
        except _CutOffError:
            return
        raise ValueError(f"{found!r} stands behind the end; two files were put into one")

    def value(self) -> Any:
        """The next value, whole."""
        self.next_char()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                # Where the text ends inside a value, the scanner stumbles there, or at the start of a string.
                if error.pos < len(self._text) - _LONGEST_WORD and not error.msg.startswith("Unterminated"):
                    raise ValueError(f"JSON fails: {error.msg}") from error
                if len(self._text) - self._at > _MAX_VALUE_CHARS:
                    raise ValueError(f"there is a value of over {_MAX_VALUE_CHARS} characters") from error
                self._more()
            except ValueError as error:  # Python's own limit: reading a number takes the square of its digits
                raise ValueError("there is a number of thousands of digits") from error
            else:
                if end == len(self._text) and not self._ended and not isinstance(value, (dict, list, str)):
                    self._more_or_end()  # a number may go on
                    continue
                self._at = end
                return value

    def _more_or_end(self) -> None:
        try:
            self._more()
        except _CutOffError:
            self._ended = True

    def _more(self) -> None:
        """Raises _CutOffError where there is no more."""
        piece = ""
        while not piece:
            data = self._bytes()
            piece = self._decode(data, final=not data)
            if not data and not piece:
                self._ended = True
                raise _CutOffError(self._damage)
        self._n_passed += self._at
        self._text = self._text[self._at :] + piece
        self._at = 0

    def _bytes(self) -> bytes:
        try:
            data = self._read(_PIECE_BYTES)
        except EOFError:
            return b""
        except (gzip.BadGzipFile, zlib.error) as error:
            self._damage = f" (its compression is damaged: {error})"
            return b""
        self._n_bytes += len(data)
        if self._n_bytes > _MAX_BYTES:
            raise UsageError(
                f"{self._path} has more than {_MAX_BYTES >> 30} GiB of text; record fewer steps", "too-large-recording"
            )
        if self._n_bytes > max(_FREE_BYTES, _MAX_RATIO * self._file_bytes):
            raise UsageError(
                f"{self._path} unpacks to over {_MAX_RATIO} times its {self._file_bytes:,} bytes, as no trace does",
                "too-large-recording",
            )
        return data
