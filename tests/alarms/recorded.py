"""Samples as cases: recorded by the project's own tracer, in an order that comes past every op and dtype early."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import torch

from audit.codec import tensors_of
from audit.knowledge.op_classes import class_of
from audit.schema import Case, Source
from audit.tracer.recorder import Recorder
from audit.tracer.values import ValueRecorder
from tests.alarms.samples import Sample

#: Rounds of the other ops that come before the first view.
_N_LATER = 3


@dataclass(frozen=True)
class Recorded:
    """Distinct cases, the file with their values (None: there are none), and how the samples went.

    ``source``: ``samples`` of torch's op tests, or programs of the ``zoo``.
    """

    cases: tuple[Case, ...]
    values: Path | None
    n_samples: int
    n_raised: int
    source: str = "samples"


def record(samples: Iterable[Sample], folder: Path, deadline: float) -> Recorded:
    """Runs the samples until ``deadline`` (of ``monotonic``); the values go to a file in ``folder``."""
    values = ValueRecorder()
    recorder = Recorder(values)
    n_samples = n_raised = 0
    recorder.start()
    try:
        for sample in samples:
            if monotonic() > deadline:
                break
            n_samples += 1
            n_raised += not _ran(sample)
    finally:
        recorder.stop()
    trace, spans = recorder.build(Source("context", "OpInfo"), {})
    path = folder / "values.safetensors"
    written = values.write(path, spans)
    values.close()
    return Recorded(tuple(in_rounds(trace.cases)), path if written else None, n_samples, n_raised)


@contextmanager
def gpu_hidden() -> Iterator[None]:
    """Inside, torch says that there is no GPU: some samples would use it, and the tracer would leave out the CPU's."""
    asked = torch.cuda.is_available
    torch.cuda.is_available = lambda: False
    try:
        yield
    finally:
        torch.cuda.is_available = asked


def _ran(sample: Sample) -> bool:
    try:
        sample.run()
    except Exception:  # noqa: BLE001  # a sample of torch that its own CPU refuses is no case of ours
        return False
    return True


def in_rounds(cases: Iterable[Case]) -> list[Case]:
    """First one case of each op and dtype, then a second one of each, and so on; views and copies come late.

    Many samples make the same views and copies, which are exact and say little of an audit's tolerance.
    """
    seen: Counter[tuple[str, str, str]] = Counter()
    ranked = []
    for case in cases:
        group = case.op, dtype_of(case), case.phase
        ranked.append((seen[group] + _N_LATER * (class_of(case.op) in ("view", "copy")), case))
        seen[group] += 1
    return [case for _, case in sorted(ranked, key=lambda item: item[0])]


def dtype_of(case: Case) -> str:
    """The dtype of the first floating tensor argument, else of the first; ``none`` where a call has no tensor."""
    dtypes = [spec.dtype for spec in tensors_of(case.args, case.kwargs, case.grads)]
    floats = [dtype for dtype in dtypes if dtype.startswith(("float", "bfloat", "complex"))]
    return next(iter(floats or dtypes), "none")
