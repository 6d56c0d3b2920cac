"""A recorder's trace to an ``.audit`` file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from audit.opset import write_opset
from audit.privacy.private_trace import made_private
from audit.schema import Source, Trace
from audit.tracer.recorder import Recorder


def write_trace(
    recorder: Recorder, source: Source, environment: Mapping[str, str], path: Path, names: Path | None = None
) -> Trace:
    """Writes what ``recorder`` saw to ``path``; the returned trace is what a reader of the file gets.

    ``names``: the trace is private, and this is where the map of its names goes. The recorder must have kept no values.
    """
    trace, spans = recorder.build(source, environment)
    values = recorder.values
    if names is not None:
        assert not spans, "a private trace has no values"
        trace = made_private(trace, names)
    write_opset(path, trace, (lambda file: values.write_to(file, spans)) if values is not None and spans else None)
    if values is not None:
        values.close()
    return trace
