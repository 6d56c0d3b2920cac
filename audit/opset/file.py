"""Reads and writes ``.audit`` files: ``trace.json`` (see ``audit.schema.Trace``) and ``values.safetensors`` in one
archive. docs/audit-file.md describes it byte by byte.

A file may come from a stranger. Its parts are looked at in the order in which they can be trusted: the archive's
headers, the size of the trace, its JSON, its form, what it says; of the values only their header, until they are used.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO

from audit import strict_json
from audit.codec import DecodeError, decode, encode
from audit.errors import UnfinishedError, UsageError
from audit.opset.archive import Member, blocks_of, member_info, members_of, read_member
from audit.opset.tensors import Tensor, check_tensors, tensors_in
from audit.ordinary_file import open_ordinary
from audit.schema import EVIDENCE_BY_BACKEND, FORMAT_VERSION, Trace
from audit.validity import check_amounts, check_cases

TRACE = "trace.json"
VALUES = "values.safetensors"
#: A model of 10,000 cases has some 20 MB; more than this is no trace of ours.
MAX_TRACE_BYTES = 1 << 27
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)


# --- writing -----------------------------------------------------------------------------------------------------


def write_opset(path: Path, trace: Trace, values: Path | Callable[[IO[bytes]], None] | None) -> None:
    """Writes ``trace`` and its values to ``path``, whole or not at all.

    ``values`` is a value file, a function that writes one, or None where no values are kept.
    """
    with replacing(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        content = strict_json.dumps({"format_version": FORMAT_VERSION, **encode(trace)})
        archive.writestr(member_info(TRACE), content)
        if values is not None:
            with archive.open(member_info(VALUES), "w", force_zip64=True) as target:
                if callable(values):
                    values(target)
                else:
                    with values.open("rb") as source:
                        shutil.copyfileobj(source, target, 1 << 20)


@contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file that takes the place of ``path`` when the block ends, and is gone when it fails. Raises UnfinishedError.

    It is on the disk before it has the name, so that not even a power cut leaves half of it there.
    """
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            with os.fdopen(descriptor, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise UnfinishedError(
                f"cannot write {path}: {error.strerror}; free space, or keep fewer values with --values 0", "disk-full"
            ) from error
        raise UnfinishedError(f"cannot write {path}: {error.strerror}", "unwritable-output") from error


# --- reading -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opset:
    """An ``.audit`` file, looked through: its trace, and where the values are that go with it."""

    path: Path
    trace: Trace
    tensors: Mapping[str, Tensor]
    trace_bytes: int
    values_bytes: int


def read_opset(path: Path) -> Trace:
    """The trace of an ``.audit`` file. Raises UsageError when it is missing, damaged, or of a newer format."""
    return open_opset(path).trace


def open_opset(path: Path) -> Opset:
    """Reads all but the values themselves. Raises UsageError when it is missing, damaged, or of a newer format."""
    with _reading(path) as file:
        members = members_of(file)
        if TRACE not in members:
            raise ValueError(f"it has no {TRACE}")
        content = strict_json.loads(read_member(file, members[TRACE], MAX_TRACE_BYTES))
        _check_version(path, content)
        _check_names(members)
        trace = decode(Trace, content)
        _check_trace(trace)
        values = members.get(VALUES)
        tensors = tensors_in(file, values.start, values.size) if values is not None else {}
        check_tensors(tensors, trace.cases)
    return Opset(path, trace, tensors, members[TRACE].size, values.size if values is not None else 0)


def extract_values(path: Path, folder: Path) -> Path | None:
    """Puts the value file of an opset into ``folder`` (only that member, under that name); None where there is none.

    Raises UsageError when it is damaged.
    """
    target = folder / VALUES
    with _reading(path) as file:
        members = members_of(file)
        _check_names(members)
        if VALUES not in members:
            return None
        values = members[VALUES]
        tensors_in(file, values.start, values.size)
        with target.open("wb") as sink:
            for block in blocks_of(file, values):
                _write(sink, block, target)
    return target


def check_values(opset: Opset) -> None:
    """Raises UsageError where the values are not those that were written, by their checksum."""
    with _reading(opset.path) as file:
        members = members_of(file)
        if VALUES in members:
            deque(blocks_of(file, members[VALUES]), maxlen=0)


def _write(sink: BinaryIO, block: bytes, target: Path) -> None:
    """Apart from the reading, whose OSErrors mean another thing."""
    try:
        sink.write(block)
    except OSError as error:
        raise UnfinishedError(f"cannot write {target}: {error.strerror}; free space", "disk-full") from error


@contextmanager
def _reading(path: Path) -> Iterator[BinaryIO]:
    """The file, where it is one; turns whatever a damaged or hostile file makes the readers raise into one sentence."""
    try:
        with open_ordinary(path) as file:
            yield file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "unreadable-opset") from error
    except DecodeError as error:
        reason = str(error).removesuffix(f" [{error.slug}]")
        raise UsageError(f"{path} is not an .audit file, or it is damaged: {reason}", "not-an-opset") from error
    except (ValueError, struct.error) as error:
        raise UsageError(f"{path} is not an .audit file, or it is damaged: {error}", "not-an-opset") from error


# --- what a stranger's file may say --------------------------------------------------------------------------------


def _check_version(path: Path, content: Any) -> None:
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError(f"{TRACE} names no format version")
    if version > FORMAT_VERSION:
        raise UsageError(
            f"{path} has opset format {version}, this rocm-audit reads up to {FORMAT_VERSION}", "newer-format"
        )


def _check_names(members: Mapping[str, Member]) -> None:
    for name in members:
        if name not in (TRACE, VALUES):
            raise ValueError(f"it has a member {name!r} that does not belong there")


def _check_trace(trace: Trace) -> None:
    check_cases(trace.cases)
    if trace.n_recorded < 0 or any(min(item.n_calls, item.n_seen) < 0 for item in trace.not_audited):
        raise ValueError("it counts fewer than no calls")
    if (times := trace.elsewhere) is not None:
        check_amounts(times)
        if times.evidence != EVIDENCE_BY_BACKEND[times.device.backend]:
            raise ValueError(f"its times are called {times.evidence}, and come from {times.device.backend!r}")
