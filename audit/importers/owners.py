"""Which call each record of the device belongs to, so that every nanosecond has one owner or is an orphan.

A case is the outermost call that a tracer would record: what is only made of other ops (``aten::linear``) is taken
apart, what chooses by device (``aten::convolution``, ``aten::layer_norm``) is kept whole with the ops inside it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias

import numpy

from audit.importers.recording import Recording
from audit.knowledge.dispatch import is_taken_apart
from audit.schema import Phase

#: ``case``: a tracer records the call. ``apart``: it records the calls inside. ``frame``: no op, only around ops.
Level: TypeAlias = Literal["case", "apart", "collective", "frame"]
#: ``graph``: launched as part of a captured graph, whose ops ran when it was captured.
Orphaned: TypeAlias = Literal["no launch", "no op", "graph"]

_OP = re.compile(r"[A-Za-z_]\w{0,63}::\w[\w.]{0,199}", re.ASCII)
_COLLECTIVE = re.compile(r"c10d::|nccl:|record_param_comms|gloo:")
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step"
_GRAPH_LAUNCH = "GraphLaunch"
#: Ends of calls are rounded to nanoseconds, and large times to half a microsecond.
_ROUNDING_US = 1.0
#: Calls inside calls. Deeper ones, which no program has, count as siblings.
_MAX_DEPTH = 1000
NONE = -1


@dataclass
class Nesting:
    """For each call, the call around it, the call that is its case (-1: none), and the phase.

    ``order`` are the calls of each thread by their start.
    """

    parent: array[int]
    case: array[int]
    phase: list[Phase]
    order: dict[int, array[int]]


@dataclass(frozen=True)
class Owner:
    """``call`` is the innermost call around the launch; ``inferred``: by the time of the launch, not by an id."""

    call: int
    inferred: bool = False


@lru_cache(maxsize=65536)
def level_of(name: str) -> Level:
    if _COLLECTIVE.match(name):
        return "collective"
    if not _OP.fullmatch(name):
        return "frame"
    return "apart" if is_taken_apart(name) else "case"


def nest(recording: Recording) -> Nesting:
    """Calls that overlap without one being inside the other are siblings."""
    calls, texts = recording.calls, recording.names.texts
    n = len(calls.name)
    nesting = Nesting(array("q", [NONE]) * n, array("q", [NONE]) * n, ["forward"] * n, {})
    starts, ends = numpy.array(calls.start_us, float), numpy.array(calls.end_us, float)
    threads = numpy.array(calls.thread, dtype=numpy.int64)
    stack: list[int] = []
    for place in numpy.lexsort((-ends, starts, threads)):
        call = int(place)
        thread = calls.thread[call]
        if thread not in nesting.order:
            nesting.order[thread] = array("q")
            stack.clear()
        nesting.order[thread].append(call)
        while stack and (len(stack) >= _MAX_DEPTH or not _is_inside(recording, call, stack[-1])):
            stack.pop()
        parent = stack[-1] if stack else NONE
        stack.append(call)
        nesting.parent[call] = parent
        _place(nesting, call, parent, texts[calls.name[call]], calls.name[call] in recording.triton)
    return nesting


def _is_inside(recording: Recording, call: int, other: int) -> bool:
    starts, ends = recording.calls.start_us, recording.calls.end_us
    return starts[call] < ends[other] and ends[call] <= ends[other] + _ROUNDING_US


def _place(nesting: Nesting, call: int, parent: int, name: str, is_triton: bool) -> None:
    """The case and the phase of a call follow from those of the call around it."""
    if parent != NONE:
        nesting.case[call], nesting.phase[call] = nesting.case[parent], nesting.phase[parent]
    if nesting.case[call] == NONE and (is_triton or level_of(name) in ("case", "collective")):
        nesting.case[call] = call
    if name.startswith(_BACKWARD):
        nesting.phase[call] = "backward"
    elif name.startswith(_OPTIMIZER):
        nesting.phase[call] = "optimizer"


class Owners:
    """Looks up the owner of a record: by the id that launch and op share, else by where the launch lies in time."""

    def __init__(self, recording: Recording, nesting: Nesting) -> None:
        self._recording = recording
        self._nesting = nesting
        self._starts: dict[int, list[float]] = {}
        self._of_one_id: dict[int, tuple[list[int], bool]] = {}
        self._calls = _Index(recording.calls.external)
        self._launches = _Index(recording.launches.correlation)

    def of(self, record: int) -> Owner | Orphaned:
        launch, is_sure = self._launch(record)
        launches = self._recording.launches
        external = self._recording.records.external[record] or (launches.external[launch] if launch != NONE else 0)
        call = self._calls.only(external)
        if is_sure and call != NONE and self._recording.calls.arguments[call] >= 0:
            return Owner(call)
        if launch == NONE:
            return "no launch"
        around = self._around(launch)
        if around != NONE:
            return Owner(around, inferred=True)
        return "graph" if _GRAPH_LAUNCH in self._recording.names.texts[launches.name[launch]] else "no op"

    def _launch(self, record: int) -> tuple[int, bool]:
        """The launch, and whether it is the only one of its id: of several it is the last before the record ran."""
        correlation = self._recording.records.correlation[record]
        launch = self._launches.only(correlation)
        if launch != NONE or correlation == 0:
            return launch, True
        rivals, is_one_thread = self._rivals(correlation)
        if is_one_thread:
            return (rivals[0] if rivals else NONE), True  # runtime and driver, the one inside the other
        starts, moment = self._recording.launches.start_us, self._recording.records.start_us[record]
        place = bisect_right(rivals, moment, key=lambda rival: starts[rival]) - 1
        return (rivals[place] if place >= 0 else NONE), False

    def _rivals(self, correlation: int) -> tuple[list[int], bool]:
        """The launches of that id by their start, and whether one thread made them."""
        if correlation not in self._of_one_id:
            launches = self._recording.launches
            rivals = sorted(self._launches.several(correlation), key=lambda rival: launches.start_us[rival])
            self._of_one_id[correlation] = rivals, len({launches.thread[rival] for rival in rivals}) < 2
        return self._of_one_id[correlation]

    def _around(self, launch: int) -> int:
        """The innermost call of an op around the launch, on its thread."""
        calls, thread = self._recording.calls, self._recording.launches.thread[launch]
        order = self._nesting.order.get(thread)
        if order is None:
            return NONE
        if thread not in self._starts:
            self._starts[thread] = [calls.start_us[call] for call in order]
        moment = self._recording.launches.start_us[launch]
        place = bisect_right(self._starts[thread], moment) - 1
        call = order[place] if place >= 0 else NONE
        while call != NONE and (calls.end_us[call] < moment or calls.arguments[call] < 0):
            call = self._nesting.parent[call]
        return call


class _Index:
    """Rows by their id. 0 is none: some ROCm releases give it to every collective (ROCm/roctracer#100). Several rows
    share an id where ranks were put into one file."""

    def __init__(self, ids: array[int]) -> None:
        self._first: dict[int, int] = {}
        self._several: dict[int, list[int]] = {}
        for row, number in enumerate(ids):
            if number and self._first.setdefault(number, row) != row:
                self._several.setdefault(number, [self._first[number]]).append(row)

    def only(self, number: int) -> int:
        """The one row of that id, -1 where there is none or more than one."""
        return NONE if number in self._several else self._first.get(number, NONE)

    def several(self, number: int) -> list[int]:
        """The rows of an id that more than one have."""
        return self._several.get(number, [])
