"""Opsets: sets of cases in one ``.audit`` file that travels between machines and torch versions.

A zip archive with ``trace.json`` (everything but the values, see ``audit.schema.Trace``) and ``values.safetensors``
(tensors named ``<case key>/<position>``, each 1-D: the storage from the tensor's first element, at ``offset``, to its
last reachable one, gaps included). Nothing in it can execute.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from pathlib import Path

from audit.codec import DecodeError, decode, encode
from audit.errors import UnfinishedError, UsageError
from audit.schema import FORMAT_VERSION, Trace

#: A fixed date, so that the same trace gives the same bytes.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_opset(path: Path, trace: Trace, values: Path | None) -> None:
    """Writes ``trace`` and the safetensors file ``values`` (or none) to ``path``, whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            content = {"format_version": FORMAT_VERSION, **encode(trace)}
            archive.writestr(
                zipfile.ZipInfo("trace.json", _EPOCH), json.dumps(content, separators=(",", ":"), allow_nan=False)
            )
            if values is not None:
                info = zipfile.ZipInfo("values.safetensors", _EPOCH)
                with values.open("rb") as source, archive.open(info, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, 1 << 20)
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise UnfinishedError(f"cannot write {path}: {error.strerror}", "unwritable-output") from error


def read_opset(path: Path) -> Trace:
    """Reads the trace of an ``.audit`` file. Raises UsageError when it is missing, damaged, or of a newer format."""
    try:
        with zipfile.ZipFile(path) as archive:
            content = json.loads(archive.read("trace.json"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", "unreadable-opset") from error
    except (zipfile.BadZipFile, KeyError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not an .audit file, or it is damaged: {error}", "not-an-opset") from error
    version = content.get("format_version") if isinstance(content, dict) else None
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise UsageError(
            f"{path} has opset format {version}, this rocm-audit reads up to {FORMAT_VERSION}", "newer-format"
        )
    try:
        return decode(Trace, content)
    except DecodeError as error:
        raise UsageError(f"{path} is not an .audit file, or it is damaged: {error}", "not-an-opset") from error


def extract_values(path: Path, folder: Path) -> Path | None:
    """Puts the value file of an opset into ``folder`` (only that member, under that name); None where there is none."""
    with zipfile.ZipFile(path) as archive:
        if "values.safetensors" not in archive.namelist():
            return None
        target = folder / "values.safetensors"
        with archive.open("values.safetensors") as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
        return target
