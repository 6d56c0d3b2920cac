"""The outer form of an ``.audit`` file: a ZIP archive of one canonical form, in which every byte has its place.

``zipfile`` reads whatever calls itself an archive: members that unpack without end or lie over one another, a directory
of millions of entries, bytes that belong to nobody. So it is used for writing alone, and the reader here takes what
our writer makes: members stored as they are, one behind the other from the first byte on, then the directory.
Source: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to 4.3.16 (end), 4.5.3 (ZIP64).
"""

from __future__ import annotations

import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

_LOCAL = struct.Struct("<4s5H3L2H")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCATOR = struct.Struct("<4sLQL")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_ZIP64_EXTRA = 1
_IN_EXTRA = 0xFFFFFFFF
#: The name is UTF-8: harmless. All other flags (encryption, sizes behind the data) change how a member is read.
_FLAG_UTF8 = 0x800
#: Two are known; a newer format may have more, and is refused by its number, not as damage.
_MAX_MEMBERS = 8
_MAX_DIRECTORY_BYTES = 1 << 12
#: A fixed date, so that the same trace gives the same bytes and no file tells when it was made.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_BLOCK = 1 << 20


class ArchiveError(ValueError):
    """The file is no such archive; the message says why."""


@dataclass(frozen=True)
class Member:
    """Where a member's bytes lie in the file, and their checksum."""

    name: str
    start: int
    size: int
    crc: int


@dataclass(frozen=True)
class _Entry:
    name: str
    crc: int
    size: int
    header_start: int


def member_info(name: str) -> zipfile.ZipInfo:
    """What ``zipfile`` is to write about a member: nothing of the machine, the user or the hour."""
    info = zipfile.ZipInfo(name, _EPOCH)
    info.external_attr = 0o644 << 16
    return info


def members_of(file: BinaryIO) -> dict[str, Member]:
    """The members of an archive by name. Reads only its headers. Raises ArchiveError."""
    file_size = file.seek(0, os.SEEK_END)
    try:
        directory, end = _directory(file, file_size)
        members, at = {}, 0
        for entry in sorted(_entries(directory), key=lambda entry: entry.header_start):
            if entry.name in members:
                raise ArchiveError(f"the member {entry.name!r} is there twice")
            members[entry.name] = member = _member(file, entry, at, end)
            at = member.start + member.size
    except struct.error as error:
        raise ArchiveError(f"it is cut off ({error})") from error
    if at != end:
        raise ArchiveError(f"{end - at} bytes at {at} belong to no member")
    return members


def _directory(file: BinaryIO, file_size: int) -> tuple[bytes, int]:
    """The directory, and where it starts: the last thing in the file but for its end record."""
    end_start = file_size - _END.size
    if end_start < 0:
        raise ArchiveError(f"it has {file_size} bytes")
    signature, disk, first_disk, n_here, n_all, size, start, n_comment = _unpack(file, _END, end_start)
    if signature != b"PK\5\6" or n_comment:
        raise ArchiveError("it does not end as an archive without a comment does")
    if _IN_EXTRA in (size, start):
        end_start, n_here, n_all, size, start = _end_64(file, end_start)
    if disk or first_disk or n_here != n_all or not 1 <= n_all <= _MAX_MEMBERS or size > _MAX_DIRECTORY_BYTES:
        raise ArchiveError(f"its directory has {n_all} entries in {size} bytes, expected at most {_MAX_MEMBERS}")
    if start + size != end_start:
        raise ArchiveError("its directory is not where its end record says")
    file.seek(start)
    return file.read(size), start


def _end_64(file: BinaryIO, end_start: int) -> tuple[int, int, int, int, int]:
    """Start of the end record for archives over 2 GiB, and what it says: members here and in all, size and start."""
    signature, _, start, _ = _unpack(file, _LOCATOR, end_start - _LOCATOR.size)
    if signature != b"PK\6\7" or start != end_start - _LOCATOR.size - _END_64.size:
        raise ArchiveError("its ZIP64 end record is not where its locator says")
    signature, _, _, _, _, _, n_here, n_all, size, directory_start = _unpack(file, _END_64, start)
    if signature != b"PK\6\6":
        raise ArchiveError("its ZIP64 end record is not one")
    return start, n_here, n_all, size, directory_start


def _entries(directory: bytes) -> Iterator[_Entry]:
    at = 0
    while at < len(directory):
        (signature, _, _, flags, method, _, _, crc, packed, size, n_name, n_extra, n_comment, _, _, _, start) = (
            _ENTRY.unpack_from(directory, at)
        )
        if signature != b"PK\1\2" or n_comment:
            raise ArchiveError("its directory is damaged")
        name = directory[at + _ENTRY.size : at + _ENTRY.size + n_name]
        extra = directory[at + _ENTRY.size + n_name : at + _ENTRY.size + n_name + n_extra]
        _refuse_unreadable(name, flags, method)
        size, packed, start = _wide(extra, size, packed, start)
        if packed != size:
            raise ArchiveError(f"the member {_text(name)!r} has {packed} bytes for {size}")
        yield _Entry(_text(name), crc, size, start)
        at += _ENTRY.size + n_name + n_extra
    if at != len(directory):
        raise ArchiveError("its directory is cut off")


def _member(file: BinaryIO, entry: _Entry, at: int, end: int) -> Member:
    """The member of a directory entry, which must begin at ``at`` and end before ``end``."""
    if entry.header_start != at:
        raise ArchiveError(f"the member {entry.name!r} begins at {entry.header_start}, expected {at}")
    signature, _, flags, method, _, _, crc, packed, size, n_name, n_extra = _unpack(file, _LOCAL, at)
    name, extra = file.read(n_name), file.read(n_extra)
    _refuse_unreadable(name, flags, method)
    size, packed, _ = _wide(extra, size, packed, 0)
    if signature != b"PK\3\4" or (_text(name), crc, size, packed) != (entry.name, entry.crc, entry.size, entry.size):
        raise ArchiveError(f"the header of the member {entry.name!r} is not what the directory says")
    start = at + _LOCAL.size + n_name + n_extra
    if size > end - start:
        raise ArchiveError(f"the member {entry.name!r} has {size} bytes, and {max(end - start, 0)} are there")
    return Member(entry.name, start, size, crc)


def _unpack(file: BinaryIO, form: struct.Struct, start: int) -> tuple[Any, ...]:
    if start < 0:
        raise ArchiveError("it is cut off")
    file.seek(start)
    return form.unpack(file.read(form.size))


def _refuse_unreadable(name: bytes, flags: int, method: int) -> None:
    if flags & ~_FLAG_UTF8:
        raise ArchiveError(f"the member {_text(name)!r} is encrypted or of a form that we do not write ({flags:#x})")
    if method != zipfile.ZIP_STORED:
        raise ArchiveError(f"the member {_text(name)!r} is compressed (method {method}); repack with `zip -0 -X`")


def _text(name: bytes) -> str:
    return name[:80].decode("utf-8", "replace")


def _wide(extra: bytes, size: int, packed: int, start: int) -> tuple[int, int, int]:
    """Size, packed size and start of a header, from the ZIP64 extra field where they stand there."""
    wide: list[int] = []
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        if kind == _ZIP64_EXTRA:
            wide = list(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
        at += 4 + length
    if [size, packed, start].count(_IN_EXTRA) > len(wide):
        raise ArchiveError("a ZIP64 field lacks a size")
    numbers = [wide.pop(0) if number == _IN_EXTRA else number for number in (size, packed, start)]
    return numbers[0], numbers[1], numbers[2]


# --- content ---------------------------------------------------------------------------------------------------


def read_member(file: BinaryIO, member: Member, max_bytes: int) -> bytes:
    """All of a member. Raises ArchiveError where it is longer than ``max_bytes`` or damaged."""
    if member.size > max_bytes:
        raise ArchiveError(f"{member.name} has {member.size} bytes, more than {max_bytes}")
    return b"".join(blocks_of(file, member))


def blocks_of(file: BinaryIO, member: Member) -> Iterator[bytes]:
    """A member's bytes in blocks. Raises ArchiveError behind the last of them where they are damaged."""
    file.seek(member.start)
    left, crc = member.size, 0
    while left:
        block = file.read(min(left, _BLOCK))
        if not block:
            raise ArchiveError(f"{member.name} is cut off")
        left -= len(block)
        crc = zlib.crc32(block, crc)
        yield block
    if crc != member.crc:
        raise ArchiveError(f"{member.name} is damaged: its checksum is {crc:08x}, expected {member.crc:08x}")
