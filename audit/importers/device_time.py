"""A recording's device time, put down to its calls: each record once, in whole nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from audit.importers.collectives import Message
from audit.importers.owners import NONE, Nesting, Orphaned, Owner, Owners, level_of, nest
from audit.importers.recording import Recording
from audit.schema import Kernel, Phase

#: Calls that are alike: name, arguments and phase, by the recording's numbers.
Alike: TypeAlias = tuple[int, int, Phase]


@dataclass
class Work:
    """What ran on the device, by kernel name: nanoseconds and launches."""

    by_kernel: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, name: int, ns: int) -> None:
        sum_ns, count = self.by_kernel.get(name, (0, 0))
        self.by_kernel[name] = (sum_ns + ns, count + 1)

    @property
    def ns(self) -> int:
        return sum(ns for ns, _ in self.by_kernel.values())

    def kernels(self, texts: list[str]) -> tuple[Kernel, ...]:
        """Costliest first."""
        rows = sorted(self.by_kernel.items(), key=lambda item: (-item[1][0], texts[item[0]]))
        return tuple(Kernel(texts[name], ns / 1000, count) for name, (ns, count) in rows)


@dataclass
class AlikeCalls:
    """Calls that are one case: how many there are, and the time of each that has a record.

    ``copies`` have the bytes and the number by direction; ``inside`` the numbers of ops' names below the case;
    ``messages`` what collectives moved, each with its nanoseconds.
    """

    n_calls: int = 0
    ns_by_call: dict[int, int] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    copies: dict[str, tuple[int, int]] = field(default_factory=dict)
    inside: dict[int, None] = field(default_factory=dict)
    messages: list[tuple[Message, int]] = field(default_factory=list)
    n_inferred: int = 0


@dataclass
class DeviceTime:
    """``alike`` has every call that is a case or a frame with time of its own; ``orphans`` the rest, by the reason."""

    alike: dict[Alike, AlikeCalls] = field(default_factory=dict)
    orphans: dict[Orphaned, Work] = field(default_factory=dict)
    n_inferred: int = 0

    @property
    def orphaned_ns(self) -> int:
        return sum(work.ns for work in self.orphans.values())


def attribute(recording: Recording) -> DeviceTime:
    """Every record of the device, with its owner or as an orphan."""
    nesting = nest(recording)
    times = DeviceTime()
    for call, case in enumerate(nesting.case):
        if call == case:
            _alike(times, recording, nesting, call).n_calls += 1
    owners = Owners(recording, nesting)
    for record in range(len(recording.records.ns)):
        owner = owners.of(record)
        if isinstance(owner, Owner):
            _put_down(times, recording, nesting, record, owner)
        else:
            times.orphans.setdefault(owner, Work()).add(recording.records.name[record], recording.records.ns[record])
    return times


def busy_us_by_device(recording: Recording) -> dict[int, float]:
    """How long each device had any work under way, on whichever stream, in microseconds as the file has them."""
    records = recording.records
    rows = zip(records.place, records.start_us, records.ns, strict=True)
    spans = sorted((recording.places[place][0], start, start + ns / 1000) for place, start, ns in rows)
    busy: dict[int, float] = {}
    until: dict[int, float] = {}
    for device, start, end in spans:
        begun = max(start, until.get(device, start))
        busy[device] = busy.get(device, 0.0) + max(0.0, end - begun)
        until[device] = max(until.get(device, end), end)
    return busy


def _alike(times: DeviceTime, recording: Recording, nesting: Nesting, call: int) -> AlikeCalls:
    key = (recording.calls.name[call], recording.calls.arguments[call], nesting.phase[call])
    return times.alike.setdefault(key, AlikeCalls())


def _put_down(times: DeviceTime, recording: Recording, nesting: Nesting, record: int, owner: Owner) -> None:
    case = _case_of(recording, nesting, owner.call)
    group = _alike(times, recording, nesting, case)
    if nesting.case[case] != case and case not in group.ns_by_call:
        group.n_calls += 1  # with time of its own between the calls inside
    records = recording.records
    group.ns_by_call[case] = group.ns_by_call.get(case, 0) + records.ns[record]
    group.work.add(records.name[record], records.ns[record])
    group.n_inferred += owner.inferred
    times.n_inferred += owner.inferred
    if record in recording.messages:
        group.messages.append((recording.messages[record], records.ns[record]))
    direction = copy_direction(recording.names.texts[records.name[record]])
    if direction:
        nbytes, count = group.copies.get(direction, (0, 0))
        group.copies[direction] = (nbytes + max(records.nbytes[record], 0), count + 1)
    call = owner.call
    while call not in (case, NONE):
        group.inside[recording.calls.name[call]] = None
        call = nesting.parent[call]


def _case_of(recording: Recording, nesting: Nesting, call: int) -> int:
    """The case of a call; without one the innermost op around it; without that the call itself, which is no op."""
    if nesting.case[call] != NONE:
        return nesting.case[call]
    around = call
    while around != NONE:
        if level_of(recording.names.texts[recording.calls.name[around]]) == "apart":
            return around
        around = nesting.parent[around]
    return call


#: Copies between host and device as Kineto and the ROCm releases name them.
_DIRECTIONS: Mapping[str, str] = {
    "Memcpy DtoH": "DtoH", "Memcpy HtoD": "HtoD", "CopyDeviceToHost": "DtoH", "CopyHostToDevice": "HtoD",
    "MEMORY_COPY_DEVICE_TO_HOST": "DtoH", "MEMORY_COPY_HOST_TO_DEVICE": "HtoD",
}  # fmt: skip


def copy_direction(name: str) -> str:
    return next((direction for start, direction in _DIRECTIONS.items() if name.startswith(start)), "")
