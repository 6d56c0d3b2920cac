"""What the profiler saw run: every op with a kernel of its own, by dtypes and shapes, with its calls and device time.

The profiler changes nothing of what runs, as a dispatch mode would (composites ask whether one is there). An op that is
only a composition of others on every device is left out; what it leads to is there.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

os.environ.setdefault("KINETO_LOG_LEVEL", "6")

import torch

from audit.device.profile import duration_us, on_device
from audit.tracer.composites import find_overload, is_composite


@dataclass(frozen=True)
class Ran:
    """One kind of call: qualified op, and what its arguments were."""

    op: str
    dtypes: tuple[str, ...]
    shapes: str


@dataclass
class Tally:
    """How often, and for how long on the device itself (on the CPU: in the op and not in the ops inside it)."""

    calls: int = 0
    us: float = 0.0


class Session:
    """One run of the profiler over a program or many cases."""

    def __init__(self) -> None:
        activities = torch.profiler.ProfilerActivity
        config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
        self._profile = torch.profiler.profile(
            activities=[activities.CPU, activities.CUDA] if torch.cuda.is_available() else [activities.CPU],
            record_shapes=True,
            experimental_config=config,
        )

    def start(self) -> None:
        self._profile.start()

    def stop(self) -> list[Any]:
        """The events, after what is queued on the device is done."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._profile.stop()
        return list(self._profile.profiler.kineto_results.events())


@contextmanager
def marked(name: str) -> Iterator[None]:
    """Marks what runs inside, on whichever thread, as belonging to ``name``."""
    with torch.profiler.record_function(f"{_MARK}{name}"):
        yield


_MARK = "fidelity:"


def tallies(events: Sequence[Any], without: str) -> dict[Ran, Tally]:
    """All that ran outside of the marks named ``without``."""
    marks = _Marks(events)
    found: dict[Ran, Tally] = {}
    for start, ran, us in _ops(events):
        if marks.at(start) != without:
            _add(found, ran, us)
    return found


def tallies_by_mark(events: Sequence[Any]) -> dict[str, dict[Ran, Tally]]:
    """What ran inside each mark; what ran outside of all is left out."""
    marks = _Marks(events)
    found: dict[str, dict[Ran, Tally]] = {}
    for start, ran, us in _ops(events):
        if (name := marks.at(start)) is not None:
            _add(found.setdefault(name, {}), ran, us)
    return found


class _Marks:
    """Which mark was open at a time."""

    def __init__(self, events: Sequence[Any]) -> None:
        self._marks = sorted(
            (event.start_ns(), event.end_ns(), event.name().removeprefix(_MARK))
            for event in events
            if event.name().startswith(_MARK) and not on_device(event)
        )
        self._starts = [start for start, _, _ in self._marks]

    def at(self, ns: int) -> str | None:
        index = bisect_right(self._starts, ns) - 1
        return self._marks[index][2] if index >= 0 and ns <= self._marks[index][1] else None


def _add(found: dict[Ran, Tally], ran: Ran, us: float) -> None:
    tally = found.setdefault(ran, Tally())
    tally.calls += 1
    tally.us += us


def _ops(events: Sequence[Any]) -> Iterator[tuple[int, Ran, float]]:
    """(start, op, own time) of every op with a kernel of its own.

    A call that autocast answers by calling the same op with other dtypes ran only as the latter.
    """
    on_gpu = _device_us(events)
    host = [event for event in events if not on_device(event) and event.name().startswith("aten::")]
    names = [_qualified(event) for event in host]
    parents = _parents(host)
    own = [duration_us(event) for event in host]
    passed_on: set[int] = set()
    for number, parent in enumerate(parents):
        if parent is not None:
            own[parent] -= duration_us(host[number])
            if names[parent] == names[number]:
                passed_on.add(parent)
    for number, event in enumerate(host):
        if number not in passed_on and not _is_only_composed(names[number]):
            us = on_gpu.get(event.correlation_id(), 0.0) if on_gpu else max(own[number], 0.0)
            ran = Ran(names[number], tuple(event.dtypes()), str([list(shape) for shape in event.shapes()]))
            yield event.start_ns(), ran, us


def _qualified(event: Any) -> str:
    overload = event.overload_name()
    return f"{event.name()}.{overload}" if overload else str(event.name())


def _parents(host: Sequence[Any]) -> list[int | None]:
    """For each op the one that it ran in, on its thread."""
    parents: list[int | None] = [None] * len(host)
    open_ops: dict[int, list[int]] = {}
    for number in sorted(range(len(host)), key=lambda n: (host[n].start_ns(), -host[n].end_ns())):
        stack = open_ops.setdefault(host[number].start_thread_id(), [])
        while stack and host[stack[-1]].end_ns() < host[number].end_ns():
            stack.pop()
        parents[number] = stack[-1] if stack else None
        stack.append(number)
    return parents


def _device_us(events: Iterable[Any]) -> dict[int, float]:
    """Device time by the number of the op that launched it; empty where nothing ran on a GPU."""
    found: dict[int, float] = {}
    for event in events:
        if on_device(event) and event.linked_correlation_id() > 0:
            number = event.linked_correlation_id()
            found[number] = found.get(number, 0.0) + duration_us(event)
    return found


@cache
def _is_only_composed(qualified: str) -> bool:
    op = find_overload(qualified.removeprefix("aten::"))
    return op is not None and is_composite(op)
