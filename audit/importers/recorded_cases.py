"""Calls of a recording as cases with what was measured of each; the rest with its device time and the reason."""

from __future__ import annotations

import re
from math import prod
from typing import Literal, cast

from audit.codec import DecodeError, case_key, item_bytes, tensors_of
from audit.importers.call_arguments import arguments_of
from audit.importers.device_time import Alike, AlikeCalls, DeviceTime, Work
from audit.importers.owners import Orphaned, level_of
from audit.importers.recorded_call import recorded_call
from audit.importers.recording import Recording
from audit.knowledge.dispatch import qualified
from audit.schema import Case, Copy, Measurement, NotAudited, Outcome, Path, Timing
from audit.validity import check_case

NO_REFERENCE = "imported: nothing was replayed, so the numbers were not compared"

_ORPHANS: dict[Orphaned, tuple[str, str]] = {
    "no launch": (
        "kernels without a recorded launch",
        "orphaned: launched before the recording began, or the profiler lost the launch",
    ),
    "no op": ("kernels launched by no op", "orphaned: launched outside of any recorded op"),
    "graph": ("kernels of captured graphs", "orphaned: a graph launch names no op; its ops ran when it was captured"),
}
_COLLECTIVE = "collective: needs the other ranks, so its time is theirs too"
_FRAME = "no op: device time of a compiled region or of the framework itself"
_IDLE = "launched nothing: the host alone, metadata, or a record that the profiler lost"


def cases_of(recording: Recording, times: DeviceTime) -> tuple[list[Case], list[Measurement], list[NotAudited]]:
    """Cases by falling device time. The time of cases and of what is not audited adds up to that of all records."""
    cases: dict[str, Case] = {}
    measurements: dict[str, Measurement] = {}
    left: list[NotAudited] = []
    idle: dict[str, int] = {}
    for key, group in sorted(times.alike.items(), key=lambda item: -item[1].work.ns):
        name = recording.names.texts[key[0]]
        if not group.ns_by_call:
            if level_of(name) != "collective":
                idle[name] = idle.get(name, 0) + group.n_calls
            continue
        try:
            case = _case(recording, key, group)
        except ValueError as error:
            left.append(_no_case(recording, name, group, str(error)))
            continue
        if case.key in cases:  # the profiler wrote the same arguments in two ways
            left.append(_no_case(recording, name, group, "its arguments are written in two ways"))
            continue
        cases[case.key] = case
        measurements[case.key] = _measurement(recording, case, group)
    left += [_orphans(recording, reason, work) for reason, work in times.orphans.items()]
    left += [NotAudited(name, _IDLE, n, computes=False) for name, n in sorted(idle.items(), key=lambda item: -item[1])]
    return list(cases.values()), list(measurements.values()), left


def _case(recording: Recording, key: Alike, group: AlikeCalls) -> Case:
    """Raises ValueError where the calls are no op's, or their arguments are none."""
    number, arguments, phase = key
    name = recording.names.texts[number]
    if number in recording.triton:
        name = f"triton::{re.sub(r'[^A-Za-z0-9_]', '_', name)[:150]}"
    elif level_of(name) == "collective":
        raise ValueError(_COLLECTIVE)
    elif level_of(name) == "frame" or arguments < 0:
        raise ValueError(_FRAME)
    written = recording.arguments[arguments]
    args = arguments_of(written)
    op, args, kwargs = recorded_call(name, tuple(written.get("Input type", ())), args)
    case = Case(case_key(op, args, kwargs, phase, None), op, args, kwargs, phase=phase, n_calls=group.n_calls)
    try:
        check_case(case)
    except DecodeError as error:
        raise ValueError(str(error).removesuffix(f" [{error.slug}]")) from error
    return case


def _no_case(recording: Recording, name: str, group: AlikeCalls, why: str) -> NotAudited:
    if why == _COLLECTIVE:
        reason = f"{why}{_moved(group)}"
    else:
        reason = why if why == _FRAME else f"arguments that cannot be read: {why}"
    return NotAudited(name, reason, group.n_calls, kernels=group.work.kernels(recording.names.texts))


def _moved(group: AlikeCalls) -> str:
    """How much, and how fast, waiting for the other ranks included."""
    nbytes = sum(message.nbytes for message, _ in group.messages)
    bus_bytes, ns = sum(message.bus_bytes for message, _ in group.messages), sum(ns for _, ns in group.messages)
    if not nbytes or not ns:
        return ""
    size = nbytes / len(group.messages)
    shown = f"{size / 1e6:.3g} MB" if size >= 1e5 else f"{size:.0f} bytes"
    return f"; {shown} a call at {bus_bytes / ns:.3g} GB/s of bus bandwidth, waiting included"


def _orphans(recording: Recording, reason: Orphaned, work: Work) -> NotAudited:
    what, why = _ORPHANS[reason]
    kernels = work.kernels(recording.names.texts)
    return NotAudited(what, why, 0, sum(kernel.count for kernel in kernels), kernels=kernels)


def _measurement(recording: Recording, case: Case, group: AlikeCalls) -> Measurement:
    texts = recording.names.texts
    n_seen = len(group.ns_by_call)
    notes = []
    if n_seen < group.n_calls:
        notes.append(f"{group.n_calls - n_seen} of {group.n_calls} calls have no record of the device")
    if group.n_inferred:
        n_records = sum(count for _, count in group.work.by_kernel.values())
        notes.append(f"inferred: {group.n_inferred} of {n_records} kernels are put down to this op by time alone")
    return Measurement(
        key=case.key,
        reference=Outcome("not_run", message=NO_REFERENCE),
        device=Outcome("ok"),
        path=Path(
            observed=True,
            complete=n_seen == group.n_calls,
            chosen_ops=tuple(qualified(texts[number]) for number in group.inside if level_of(texts[number]) != "frame"),
            kernels=group.work.kernels(texts),
            copies=tuple(
                Copy(cast(Literal["DtoH", "HtoD"], direction), nbytes, count)
                for direction, (nbytes, count) in sorted(group.copies.items())
            ),
            n_calls=n_seen,
        ),
        device_time=_timing(list(group.ns_by_call.values())),
        operand_bytes=_operand_bytes(case),
        notes=tuple(notes),
    )


def _timing(times_ns: list[int]) -> Timing:
    ordered = sorted(times_ns)
    lower, median, upper = (_quantile(ordered, share) / 1000 for share in (0.25, 0.5, 0.75))
    return Timing(median, upper - lower, len(ordered), total_us=sum(ordered) / 1000)


def _quantile(ordered: list[int], share: float) -> float:
    """Between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def _operand_bytes(case: Case) -> int:
    """Of the tensors whose dtype the profiler names."""
    return sum(prod(spec.sizes) * item_bytes(spec.dtype) for spec in tensors_of(case.args, case.kwargs))
