"""A trace of torch.profiler (Kineto) as a finished run: its ops are cases, its kernels their device time.

Nothing is replayed, so no numbers are compared: what can be judged is time, path and library. Every nanosecond that the
device worked is in one case, or in what has no case, with the reason.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import audit
from audit.errors import UsageError
from audit.importers.device_time import DeviceTime, attribute, busy_us_by_device
from audit.importers.recorded_cases import cases_of
from audit.importers.recorded_device import device_of, environment_of
from audit.importers.recording import Recording, read_events
from audit.run_records import Run, RunEnd, RunHeader
from audit.schema import EVIDENCE_BY_BACKEND, IMPORTED, Source


def read_recording(path: Path) -> Run:
    """Raises UsageError for a file that is no trace, or one in which nothing ran on a GPU."""
    recording = read_events(path)
    if not recording.records.name:
        remedy = "record it with ProfilerActivity.CPU and ProfilerActivity.CUDA, which is also what ROCm builds call it"
        if recording.cut_off:
            remedy = f"{recording.cut_off}, and kernels come late in it; copy or record it again"
        raise UsageError(
            f"{path} has no kernel of a GPU among its {recording.n_events} events; {remedy}", "no-device-records"
        )
    times = attribute(recording)
    cases, measurements, not_audited = cases_of(recording, times)
    device = device_of(recording.properties, _busiest_device(recording), _launch_names(recording))
    header = RunHeader(
        evidence=EVIDENCE_BY_BACKEND[device.backend],
        source=Source(IMPORTED, path.name, n_steps=_n_steps(recording)),
        device=device,
        environment=environment_of(recording.properties),
        settings={"imported from": "a trace of torch.profiler", "replayed": "nothing"},
        created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        audit_version=audit.__version__,
        n_cases=len(cases),
        n_recorded=sum(case.n_calls for case in cases) + sum(item.n_calls for item in not_audited),
        not_audited=tuple(not_audited),
        notes=tuple(_notes(recording, times)),
    )
    end = RunEnd(not recording.cut_off, recording.cut_off and f"{recording.cut_off}; what it holds until then is read")
    return Run(header, tuple(cases), {measurement.key: measurement for measurement in measurements}, end=end)


def _busiest_device(recording: Recording) -> int | None:
    """The one that worked longest, where the recording has several."""
    by_device: dict[int, int] = {}
    for place, ns in zip(recording.records.place, recording.records.ns, strict=True):
        device = recording.places[place][0]
        by_device[device] = by_device.get(device, 0) + ns
    return max(by_device, key=lambda device: by_device[device], default=None)


def _launch_names(recording: Recording) -> list[str]:
    texts = recording.names.texts
    return [texts[number] for number in set(recording.launches.name)]


def _n_steps(recording: Recording) -> int | None:
    """Annotations ``ProfilerStep#7``; a step that only began is one too."""
    texts = recording.names.texts
    steps = {texts[number] for number in set(recording.calls.name) if texts[number].startswith("ProfilerStep#")}
    return len(steps) or None


def _notes(recording: Recording, times: DeviceTime) -> Iterator[str]:
    total_ns, orphaned_ns = sum(recording.records.ns), times.orphaned_ns
    yield ("Imported: another tool measured while the program ran; nothing was replayed, and no numbers were compared.")
    n_devices, n_streams = len({device for device, _ in recording.places}), len(recording.places)
    busy_us = sum(busy_us_by_device(recording).values())
    yield (
        f"Device time of {len(recording.records.ns)} kernels, copies and fills: {total_ns / 1e6:.3f} ms "
        f"({n_streams} streams, {n_devices} devices); {orphaned_ns / 1e6:.3f} ms of it belong to no recorded op. "
        f"Some work was under way for {busy_us / 1e3:.3f} ms."
    )
    if times.n_inferred:
        yield (
            f"Inferred: {times.n_inferred} kernels are given to the op in which their launch lies in time, since no id "
            "names it."
        )
    if recording.n_damaged:
        yield f"Left out: {recording.n_damaged} events without a name or a time."
    distributed = recording.properties.get("distributedInfo")
    if isinstance(distributed, dict) and type(distributed.get("rank")) is int:
        yield f"The trace is of rank {distributed['rank']} of {distributed.get('world_size', 'several')}."
