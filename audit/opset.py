"""Opsets: sets of cases in one ``.audit`` file that travels between machines and torch versions.

A zip archive with ``trace.json`` (everything but the values, see ``audit.schema.Trace``) and ``values.safetensors``
(tensors named ``<case key>/<position>``, each 1-D: the storage from the tensor's first element, at ``offset``, to its
last reachable one, gaps included). Nothing in it can execute.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from audit.codec import DecodeError, decode, encode, tensors_of
from audit.errors import UnfinishedError, UsageError
from audit.schema import FORMAT_VERSION, TensorSpec, Trace

#: A fixed date, so that the same trace gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)
_TRACE = "trace.json"
_VALUES = "values.safetensors"
#: A model of 10,000 cases has some 20 MB; more than this is damage, or a few kilobytes that unpack without end.
_MAX_TRACE_BYTES = 1 << 30
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_INT64 = 1 << 63


def write_opset(path: Path, trace: Trace, values: Path | None) -> None:
    """Writes ``trace`` and the safetensors file ``values`` (or none) to ``path``, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            content = {"format_version": FORMAT_VERSION, **encode(trace)}
            archive.writestr(
                zipfile.ZipInfo(_TRACE, _EPOCH), json.dumps(content, separators=(",", ":"), allow_nan=False)
            )
            if values is not None:
                info = zipfile.ZipInfo(_VALUES, _EPOCH)
                with values.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UnfinishedError(f"cannot write {path}: {error.strerror}", "unwritable-output") from error


def read_opset(path: Path) -> Trace:
    """Reads the trace of an ``.audit`` file. Raises UsageError when it is missing, damaged, or of a newer format."""
    with _reading(path), zipfile.ZipFile(path) as archive:
        size = archive.getinfo(_TRACE).file_size
        if size > _MAX_TRACE_BYTES:
            raise ValueError(f"{_TRACE} has {size} bytes")
        content = json.loads(archive.read(_TRACE))
    version = content.get("format_version") if isinstance(content, dict) else None
    if type(version) is not int or not 1 <= version <= FORMAT_VERSION:
        raise UsageError(
            f"{path} has opset format {version}, this rocm-audit reads up to {FORMAT_VERSION}", "newer-format"
        )
    with _reading(path):
        trace = decode(Trace, content)
        _check(trace)
    return trace


def extract_values(path: Path, folder: Path) -> Path | None:
    """Puts the value file of an opset into ``folder`` (only that member, under that name); None where there is none.

    Raises UsageError when it is damaged.
    """
    target = folder / _VALUES
    with _reading(path), zipfile.ZipFile(path) as archive:
        if _VALUES not in archive.namelist():
            return None
        source = archive.open(_VALUES)
        with source, target.open("wb") as sink:
            while block := source.read(1 << 20):
                _write(sink, block, target)
    return target


def _write(sink: BinaryIO, block: bytes, target: Path) -> None:
    """Apart from the reading, whose OSErrors mean another thing."""
    try:
        sink.write(block)
    except OSError as error:
        raise UnfinishedError(f"cannot write {target}: {error.strerror}; free space", "disk-full") from error


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns whatever a damaged or hostile file makes the readers raise into one sentence."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "unreadable-opset") from error
    except DecodeError as error:
        reason = str(error).removesuffix(f" [{error.slug}]")
        raise UsageError(f"{path} is not an .audit file, or it is damaged: {reason}", "not-an-opset") from error
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, RuntimeError) as error:
        # RuntimeError: an encrypted member, an unknown compression, nesting without end
        raise UsageError(f"{path} is not an .audit file, or it is damaged: {error}", "not-an-opset") from error


# --- what a stranger's file may say --------------------------------------------------------------------------------


def _check(trace: Trace) -> None:
    """Raises DecodeError where a case has a key that is no plain name or not its own, or a tensor of no memory.

    Keys become file names, and offsets places in memory.
    """
    keys: set[str] = set()
    for case in trace.cases:
        if not _PLAIN_KEY.fullmatch(case.key) or case.key in keys:
            raise DecodeError(f"the key {case.key[:80]!r} of a case is no plain name, or is there twice")
        keys.add(case.key)
        if case.n_calls < 1:
            raise DecodeError(f"case {case.key} has {case.n_calls} calls")
        for spec in tensors_of(case.args, case.kwargs, case.grads):
            _check_spec(case.key, spec)


def _check_spec(key: str, spec: TensorSpec) -> None:
    numbers = (*spec.sizes, *spec.strides, spec.offset, spec.extent)
    if len(spec.sizes) != len(spec.strides) or not all(0 <= number < _INT64 for number in numbers):
        raise DecodeError(
            f"case {key} has a tensor of sizes {spec.sizes}, strides {spec.strides}, offset {spec.offset}"
        )
    last = spec.offset + sum((size - 1) * stride for size, stride in zip(spec.sizes, spec.strides, strict=True))
    if 0 not in spec.sizes and last >= _INT64:
        raise DecodeError(f"case {key} has a tensor that ends {last} elements on")
