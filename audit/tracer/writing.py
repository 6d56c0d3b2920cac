"""A recorder's trace to an ``.audit`` file."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from audit.errors import UnfinishedError
from audit.opset import write_opset
from audit.schema import Source, Trace
from audit.tracer.recorder import Recorder


def write_trace(recorder: Recorder, source: Source, environment: Mapping[str, str], path: Path) -> Trace:
    """Writes what ``recorder`` saw to ``path``; the returned trace is what a reader of the file gets."""
    trace, spans = recorder.build(source, environment)
    values = recorder.values
    with _scratch(path) as folder:
        file = Path(folder, "values.safetensors")
        written = values is not None and values.write(file, spans)
        write_opset(path, trace, file if written else None)
    if values is not None:
        values.close()
    return trace


def _scratch(path: Path) -> tempfile.TemporaryDirectory[str]:
    """A folder beside ``path``, where what is moved to it must have room."""
    try:
        return tempfile.TemporaryDirectory(prefix="rocm-audit-", dir=path.resolve().parent)
    except OSError as error:
        raise UnfinishedError(f"cannot write {path}: {error.strerror}", "unwritable-output") from error
