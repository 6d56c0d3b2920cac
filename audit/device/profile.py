"""One op under torch.profiler: the ops inside, the kernels that ran, the copies between host and device.

The profiler sees everything, also what ATen calls inside a kernel, and changes nothing. A dispatch mode beside it would
change the path itself: composites ask whether one is there (``areAnyTensorSubclassLike``).
"""

from __future__ import annotations

import dataclasses
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch

from audit.schema import Copy, Kernel, Path

T = TypeVar("T")

#: "Memcpy DtoH (Device -> Pinned)" (Kineto) and the blit kernels of ROCm <= 7.1 (TraceLens util.py).
_COPY = re.compile(r"Memcpy (DtoH|HtoD)|MEMORY_COPY_(DEVICE_TO_HOST|HOST_TO_DEVICE)")
_ROCM_DIRECTIONS = {"DEVICE_TO_HOST": "DtoH", "HOST_TO_DEVICE": "HtoD"}
#: Copies within the device and fills, too.
_MOVES = re.compile(r"(Memcpy|Memset|MEMORY_COPY|__amd_rocclr_)", re.IGNORECASE)
#: Device work that is neither a kernel of an op nor a copy between host and device.
_NO_KERNEL = re.compile(r"(Memcpy|Memset|MEMORY_COPY|__amd_rocclr_|(Context|Stream|Event) (Sync|Wait))", re.IGNORECASE)


#: What the call's events are found by: a range that no op and no kernel is called like.
_RANGE = "rocm-audit: the call"
#: A pause around the range on either side, and how far a device's clock may be from the host's. Markers lie beyond it.
_PAUSE_S = 0.0005
_CLOCKS_NS = 250_000
#: Each session of CUPTI loses kernel records at its beginning, in some releases one more in every session of a process
#: (https://github.com/pytorch/pytorch/issues/192021): so many markers are launched first, and more where some are lost.
_MARKERS, _MAX_MARKERS = 8, 1024
#: Of the profiler's test of itself.
_TRIES = 3


class Profiler:
    """Observes single calls; says of each whether the records around it were there, so that its own can be believed."""

    def __init__(self, synchronize: Callable[[], None], before: Callable[[], None] = lambda: None) -> None:
        """``before`` runs ahead of each call: it leaves the caches as the timed runs find them."""
        # Kineto writes "USDT: profiler_start" to file descriptor 2 below this level, which would look like the op's.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        # From CUDA 12.6 on Kineto may end CUPTI after each session, on a thread beside the next one, and start it anew
        # (https://github.com/pytorch/kineto/pull/1264, pull/1554): slow, and a race where sessions follow each other.
        os.environ.setdefault("TEARDOWN_CUPTI", "0")
        self._synchronize, self._before = synchronize, before
        self._complete = False
        self._marker: torch.Tensor | None = None
        self._n_markers = _MARKERS

    def test_itself(self, device: torch.device) -> None:
        """A matmul must show at least one kernel, or missing kernels mean nothing (the AMD profiler drops records).

        Where it never does, no markers are launched later on: nobody would see them.
        """
        self._marker = torch.zeros(1, device=device)
        a = torch.ones(64, 64, device=device)
        for _ in range(_TRIES):
            _, path = self._observe(lambda: torch.mm(a, a), "")
            self._complete = path.complete and bool(path.kernels) and "aten::mm.default" in path.chosen_ops
            if self._complete:
                return
        self._marker = None

    def observe(self, call: Callable[[], T], within: str = "") -> tuple[T, Path]:
        """Runs ``call`` once between synchronisations. Without a working profiler the path is not observed.

        ``within`` names an op (``aten::mm``): only what ran inside its calls is told, where ``call`` does more.
        """
        result, path = self._observe(call, within)
        return result, dataclasses.replace(path, complete=path.complete and self._complete)

    def _observe(self, call: Callable[[], T], within: str) -> tuple[T, Path]:
        """The path is complete where the markers on both sides of the call were seen."""
        self._synchronize()
        profiler = self._start()
        try:
            self._mark(self._n_markers)
            self._before()
            self._synchronize()
            time.sleep(_PAUSE_S)
            with torch.profiler.record_function(_RANGE):
                result = call()
                self._synchronize()
            time.sleep(_PAUSE_S)
            self._mark(1)
        finally:
            events = self._stop(profiler)
        if events is None:
            return result, Path(False, False)
        before, mine, after = around(events)
        self._n_markers = markers_needed(self._n_markers, len(before))
        complete = bool(before) and bool(after)
        ops = chosen_ops(_op_name(event) for event in inside(mine, within) if not on_device(event))
        return result, Path(True, complete, ops, kernels_of(mine), copies_of(mine), moved_us=moved_us(mine))

    def _mark(self, n: int) -> None:
        """Launches ``n`` kernels whose records must be there, and waits for them."""
        if self._marker is not None:
            for _ in range(n):
                self._marker.add_(1)
            self._synchronize()

    @staticmethod
    def _start() -> Any:
        activities = torch.profiler.ProfilerActivity
        options: dict[str, Any] = {"activities": [activities.CPU, activities.CUDA]}
        if (config := _config()) is not None:
            options["experimental_config"] = config
        try:
            with _quietly():
                profiler = torch.profiler.profile(**options)
                profiler.start()
        except (RuntimeError, AttributeError):
            return None
        return profiler

    @staticmethod
    def _stop(profiler: Any) -> list[Any] | None:
        if profiler is None:
            return None
        try:
            with _quietly():
                profiler.stop()
            return list(profiler.profiler.kineto_results.events())
        except (RuntimeError, AttributeError):
            return None


@contextmanager
def _quietly() -> Iterator[None]:
    """The profiler warns about itself; the case's warnings are to be the op's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _config() -> Any:
    """Overloads and the bytes of copies in the events; torch 2.9 tells overloads only. None where it has neither."""
    with_bytes: dict[str, Any] = {"expose_kineto_event_metadata": True}  # new in torch 2.10
    for settings in (with_bytes, {}):
        try:
            return torch._C._profiler._ExperimentalConfig(capture_overload_names=True, **settings)
        except (AttributeError, TypeError):
            continue
    return None


def on_device(event: Any) -> bool:
    """True for what ran on the GPU."""
    return str(event.device_type()).rsplit(".", 1)[-1] not in ("CPU", "MKLDNN")


def _op_name(event: Any) -> str:
    """``aten::sum.dim_IntList`` where the profiler was asked for overloads; the bare name where it has none to give."""
    name, overload = event.name(), event.overload_name() if hasattr(event, "overload_name") else ""
    return f"{name}.{overload}" if overload else str(name)


def around(events: Sequence[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Markers on the device before the call, the events of the call, markers after it.

    Where the range of the call was not recorded, all events are the call's and there are no markers.
    """
    ranges = [event for event in events if event.name() == _RANGE]
    on_host = [event for event in ranges if not on_device(event)]
    if not on_host:
        return [], list(events), []
    start, end = on_host[0].start_ns(), on_host[0].end_ns()
    others = [event for event in events if event.name() != _RANGE and not event.name().startswith("profiler::")]
    early, late = start - _CLOCKS_NS, end + _CLOCKS_NS
    device = [event for event in others if on_device(event)]
    mine = [
        event
        for event in others
        if (early <= event.start_ns() <= late if on_device(event) else start <= event.start_ns() <= end)
    ]
    before = [event for event in device if event.start_ns() < early and _is_kernel(event)]
    after = [event for event in device if event.start_ns() > late and _is_kernel(event)]
    return before, mine, after


def markers_needed(n_launched: int, n_seen: int) -> int:
    """How many to launch in the next session: twice as many as were lost in this one, and eight."""
    return min(_MARKERS + 2 * max(n_launched - n_seen, 0), _MAX_MARKERS)


def inside(events: Sequence[Any], op: str) -> Sequence[Any]:
    """The events that began during a call of ``op``; all of them where it is empty or no such call was seen."""
    spans = [(event.start_ns(), event.end_ns()) for event in events if op and event.name() == op]
    if not spans:
        return events
    return [event for event in events if any(start <= event.start_ns() <= end for start, end in spans)]


def chosen_ops(profiled: Iterable[str]) -> tuple[str, ...]:
    """Qualified ops in order of their first call. One without an overload is the one that it has, or its default."""
    ops: list[str] = []
    for name in dict.fromkeys(profiled):
        base, _, overload = name.partition(".")
        if re.fullmatch(r"\w+::\w+", base):
            ops.append(f"{base}.{overload or _sole_overload(base)}")
    return tuple(dict.fromkeys(ops))


def _sole_overload(name: str) -> str:
    namespace, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    overloads = [overload for overload in packet.overloads() if "out" not in overload] if packet is not None else []
    return overloads[0] if len(overloads) == 1 else "default"


def duration_us(event: Any) -> float:
    """Microseconds; ``duration_ns`` came with torch 2.4."""
    if hasattr(event, "duration_ns"):
        return float(event.duration_ns()) / 1e3
    return float(event.duration_us())


def kernels_of(events: Iterable[Any]) -> tuple[Kernel, ...]:
    """Kernels by name with their summed device time, in order of first launch."""
    total: dict[str, tuple[float, int]] = {}
    for event in events:
        if on_device(event) and _is_kernel(event):
            us, count = total.get(event.name(), (0.0, 0))
            total[event.name()] = (us + duration_us(event), count + 1)
    return tuple(Kernel(name, us, count) for name, (us, count) in total.items())


def _is_kernel(event: Any) -> bool:
    """By activity where the event has one; by name too, since ROCm up to 7.1 files its copies under kernels."""
    kind = event.activity_type() if hasattr(event, "activity_type") else "kernel"
    return kind in ("kernel", "concurrent_kernel") and not _NO_KERNEL.match(event.name())


def copies_of(events: Iterable[Any]) -> tuple[Copy, ...]:
    """Copies between host and device by direction, with their bytes (0 where this profiler does not tell)."""
    total: dict[str, Copy] = {}
    for event in events:
        found = _COPY.search(event.name()) if on_device(event) else None
        if found is None:
            continue
        direction: Any = found[1] or _ROCM_DIRECTIONS[found[2]]
        seen = total.get(direction, Copy(direction, 0, 0))
        total[direction] = Copy(direction, seen.nbytes + _n_bytes(event), seen.count + 1)
    return tuple(total.values())


def moved_us(events: Iterable[Any]) -> float:
    """Device time of copies and fills, in any direction."""
    return sum(duration_us(event) for event in events if on_device(event) and _MOVES.match(event.name()))


def _n_bytes(event: Any) -> int:
    """Bytes of a copy: ``nbytes()``, or Kineto's metadata where that is all there is."""
    if hasattr(event, "nbytes") and (n := int(event.nbytes())) > 0:
        return n
    text = event.metadata_json() if hasattr(event, "metadata_json") else ""
    found = re.search(r'"bytes"\s*:\s*(\d+)', text)
    return int(found[1]) if found else 0
