"""``with audit.trace("m.audit"):`` records what the block executes, from a notebook or a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from audit.device.environment import collect_environment
from audit.errors import UsageError
from audit.privacy.name_map import new_map_path
from audit.schema import Source
from audit.tracer.program import check_recorded
from audit.tracer.recorder import Recorder
from audit.tracer.values import DEFAULT_TOTAL_BYTES, ValueRecorder
from audit.tracer.writing import write_trace


@contextmanager
def trace(
    path: str | Path, *, force: bool = False, values_bytes: int = DEFAULT_TOTAL_BYTES, private: bool = False
) -> Iterator[Recorder]:
    """Records the aten ops of the block into the opset ``path``.

    ``values_bytes`` bounds the copies of argument values. ``private`` keeps none, and the program's names go to a map
    beside the file (docs/audit-file.md). Raises UsageError when the file exists and not ``force``,
    UnfinishedError when the block ran no op. When the block raises, what was recorded is written and the exception
    goes on.
    """
    path = Path(path)
    if path.exists() and not force:
        raise UsageError(f"{path} exists; use force=True to replace it", "exists")
    names = new_map_path(path, force) if private else None
    recorder = Recorder(ValueRecorder(total_bytes=0 if private else values_bytes))
    recorder.start()
    problem: BaseException | None = None
    try:
        yield recorder
    except BaseException as error:
        problem = error
        raise
    finally:
        recorder.stop()
        described = f"{type(problem).__name__}: {problem}" if problem is not None else None
        source = Source("context", path.name, error=described)
        if problem is None or recorder.n_recorded:
            check_recorded(recorder, source)
            write_trace(recorder, source, collect_environment(), path, names)
