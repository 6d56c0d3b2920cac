"""The items of one array of a JSON file, one at a time: a recording of gigabytes is read in the memory of one item."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

from audit.errors import UsageError

_CHUNK = 1 << 20
#: Characters of one item. The largest real ones, calls with thousands of tensors, have a few hundred thousand.
MAX_ITEM = 1 << 24
#: Decompressed; nodes beyond any number that is kept.
_MAX_CHARACTERS = 1 << 36
_GAP = re.compile(r"[\s,]*")


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


#: Names of annotations may hold control characters as they are: the recorders do not escape them all.
_DECODER = json.JSONDecoder(parse_constant=_refuse, strict=False)


def items_of(path: Path, array: str) -> Iterator[dict[str, Any]]:
    """The objects in the array that the outermost object holds under the name ``array``; nothing else of it is kept.

    Before the array there may be plain values alone. The file may be gzip. Raises UsageError: cut off, damaged, too
    large an item, no such array.
    """
    begin = re.compile(rf'\s*\{{[^\[\]{{}}]*"{array}"\s*:\s*\[')
    with _opened(path) as file:
        text = _Text(path, file)
        text.skip(begin, f'it does not begin as an object with a list "{array}"')
        while (item := text.item()) is not None:
            yield item


class _Text:
    """A window on a file's text that moves on as items are taken. ``_start`` is where it begins in the file."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._window = ""
        self._at = 0
        self._start = 0

    def skip(self, pattern: re.Pattern[str], otherwise: str) -> None:
        """Moves behind what the file begins with."""
        self._more()
        match = pattern.match(self._window)
        if match is None:
            raise self._damaged(otherwise)
        self._at = match.end()

    def item(self) -> dict[str, Any] | None:
        """The next object, or None where the array ends."""
        while True:
            self._at = _GAP.match(self._window, self._at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if self._at < len(self._window):
                break
            if not self._more():
                raise self._damaged("it is cut off")
        if self._window[self._at] == "]":
            return None
        return self._object()

    def _object(self) -> dict[str, Any]:
        while True:
            try:
                item, self._at = _DECODER.raw_decode(self._window, self._at)
            except json.JSONDecodeError as error:
                if len(self._window) - self._at > MAX_ITEM:
                    raise self._damaged(f"an item of more than {MAX_ITEM >> 20} MiB, or {error.msg}") from error
                if not self._more():
                    raise self._damaged(f"it is cut off, or {error.msg}") from error
            except (ValueError, RecursionError) as error:
                raise self._damaged(str(error)) from error
            else:
                if not isinstance(item, dict):
                    raise self._damaged(f"expected an object, got {type(item).__name__}")
                return item

    def _more(self) -> bool:
        """Reads on, dropping what was taken; each time twice as much of an item that does not end. False at the end."""
        self._start += self._at
        if self._start > _MAX_CHARACTERS:
            raise UsageError(f"{self._path} has more than {_MAX_CHARACTERS >> 30} GiB", "recording-too-large")
        self._window = self._window[self._at :]
        self._at = 0
        content = self._file.read(max(_CHUNK, len(self._window)))
        self._window += self._decode(content, final=not content)
        return bool(content)

    def _damaged(self, what: str) -> UsageError:
        where = self._start + self._at
        return UsageError(f"cannot read {self._path} from character {where} on: {what}", "bad-recording")


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    """The content of a file, decompressed where it is gzip. Raises UsageError."""
    try:
        with path.open("rb") as raw:
            is_gzip = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            yield gzip.GzipFile(fileobj=raw) if is_gzip else raw  # type: ignore[misc]  # read() is all that is used
    except (OSError, EOFError, zlib.error) as error:
        raise UsageError(f"cannot read {path}: {error}", "unreadable-recording") from error
