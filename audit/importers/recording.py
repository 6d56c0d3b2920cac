"""What a profiler recorded, sorted out of its events: calls of ops, launches, and what ran on the device.

Rows of numbers lie in columns, since a large trace has millions of them. Times on the host are in microseconds, as the
file has them; on the device in whole nanoseconds, so that their sums are exact.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from audit.errors import UsageError
from audit.importers.collectives import Message, message_of
from audit.importers.event_stream import EventStream

#: Rows that are kept, each of some 60 bytes; what only describes the host (Python frames, flows) is not.
MAX_ROWS: Final = 20_000_000
MAX_NAME = 4096
#: Of names and arguments, each once. A large trace has some 50,000 different calls of 300 characters.
MAX_TEXT_CHARS: Final = 1 << 27

#: Categories by the words of all releases: of Kineto, and of 2021 ("Operator", "Kernel", "Runtime").
_OPS = ("cpu_op", "Operator")
_ANNOTATIONS = ("user_annotation",)
_LAUNCHES = ("cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "Runtime")
_DEVICE = ("kernel", "Kernel", "gpu_memcpy", "Memcpy", "gpu_memset", "Memset")
#: What a call of an op says of its arguments: sizes, strides, types, and the text of numbers.
_ARGUMENTS = ("Input Dims", "Input Strides", "Input type", "Concrete Inputs")


def _ints() -> array[int]:
    return array("q")


def _floats() -> array[float]:
    return array("d")


@dataclass
class Names:
    """Numbers for what comes again and again."""

    texts: list[str] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, name: str) -> int:
        number = self.numbers.setdefault(name, len(self.texts))
        if number == len(self.texts):
            self.texts.append(name)
        return number


@dataclass
class Calls:
    """Calls of ops, and the annotations around them (``arguments`` -1), on threads of the host."""

    name: array[int] = field(default_factory=_ints)
    arguments: array[int] = field(default_factory=_ints)
    thread: array[int] = field(default_factory=_ints)
    start_us: array[float] = field(default_factory=_floats)
    end_us: array[float] = field(default_factory=_floats)
    external: array[int] = field(default_factory=_ints)


@dataclass
class Launches:
    """Calls of the runtime that put work on the device. ``external`` 0: of no op."""

    name: array[int] = field(default_factory=_ints)
    thread: array[int] = field(default_factory=_ints)
    start_us: array[float] = field(default_factory=_floats)
    external: array[int] = field(default_factory=_ints)
    correlation: array[int] = field(default_factory=_ints)


@dataclass
class Records:
    """What ran on the device. ``place`` is a device and its stream; ``nbytes`` of copies; 0 where a number lacks."""

    name: array[int] = field(default_factory=_ints)
    place: array[int] = field(default_factory=_ints)
    start_us: array[float] = field(default_factory=_floats)
    ns: array[int] = field(default_factory=_ints)
    external: array[int] = field(default_factory=_ints)
    correlation: array[int] = field(default_factory=_ints)
    nbytes: array[int] = field(default_factory=_ints)


@dataclass
class Recording:
    """The trace, without the events that say nothing of the device.

    ``arguments`` are those of calls, each once, in the order that ``Calls.arguments`` numbers them. ``places`` are
    devices and streams, ``messages`` what collectives moved, by the row of their record. ``n_damaged`` counts events
    without a name or a time, which are left out.
    """

    names: Names = field(default_factory=Names)
    calls: Calls = field(default_factory=Calls)
    launches: Launches = field(default_factory=Launches)
    records: Records = field(default_factory=Records)
    arguments: list[Mapping[str, Any]] = field(default_factory=list)
    triton: set[int] = field(default_factory=set)
    places: list[tuple[int, int]] = field(default_factory=list)
    messages: dict[int, Message] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    cut_off: str = ""
    n_events: int = 0
    n_damaged: int = 0


def read_events(path: Path) -> Recording:
    """Raises UsageError for a file that is no trace, or one of more rows than memory is meant to hold."""
    stream = EventStream(path)
    sorter = _Sorter()
    for event in stream:
        sorter.take(event)
        if sorter.n_rows > MAX_ROWS or sorter.n_chars > MAX_TEXT_CHARS:
            raise UsageError(
                f"{path} has over {MAX_ROWS} calls and kernels, or too many different ones; record fewer steps",
                "too-large-recording",
            )
    recording = sorter.recording
    recording.properties, recording.cut_off, recording.n_events = stream.properties, stream.cut_off, stream.n_events
    return recording


class _Sorter:
    def __init__(self) -> None:
        self.recording = Recording()
        self.n_rows = 0
        self.n_chars = 0
        self._threads: dict[tuple[int | str, ...], int] = {}
        self._places: dict[tuple[int, int], int] = {}
        self._arguments: dict[str, int] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Keeps a complete event (phase X) of a category that counts."""
        category = event.get("cat")
        if event.get("ph", "X") != "X" or not isinstance(category, str):
            return
        if category in _DEVICE:
            kept = self._device(event)
        elif category in _OPS or category in _ANNOTATIONS:
            kept = self._call(event, category in _OPS)
        elif category in _LAUNCHES:
            kept = self._launch(event)
        else:
            return
        self.n_rows += kept
        self.recording.n_damaged += not kept

    def _call(self, event: Mapping[str, Any], is_op: bool) -> bool:
        name, start, duration = _name(event), _number(event.get("ts")), _number(event.get("dur"))
        if name is None or start is None or duration is None or duration < 0:
            return False
        details = _details(event)
        number = self.recording.names.number(name)
        if details.get("kernel_backend") == "triton":
            self.recording.triton.add(number)
        calls = self.recording.calls
        calls.name.append(number)
        calls.arguments.append(self._numbered_arguments(details) if is_op else -1)
        calls.thread.append(self._thread(event))
        calls.start_us.append(start)
        calls.end_us.append(start + duration)
        calls.external.append(_id(details, "External id", "external id"))
        return True

    def _launch(self, event: Mapping[str, Any]) -> bool:
        name, start, details = _name(event), _number(event.get("ts")), _details(event)
        if name is None or start is None:
            return False
        launches = self.recording.launches
        launches.name.append(self._number(name))
        launches.thread.append(self._thread(event))
        launches.start_us.append(start)
        launches.external.append(_id(details, "External id", "external id"))
        launches.correlation.append(_id(details, "correlation"))
        return True

    def _device(self, event: Mapping[str, Any]) -> bool:
        name, duration, details = _name(event), _number(event.get("dur")), _details(event)
        if name is None or duration is None or not 0 <= duration < 1e12:
            return False
        records = self.recording.records
        records.name.append(self._number(name))
        records.place.append(self._place(event, details))
        records.start_us.append(_number(event.get("ts")) or 0.0)
        records.ns.append(round(duration * 1000))
        records.external.append(_id(details, "External id", "external id"))
        records.correlation.append(_id(details, "correlation"))
        records.nbytes.append(_id(details, "bytes"))
        if "Collective name" in details and (message := message_of(details)) is not None:
            self.recording.messages[len(records.name) - 1] = message
        return True

    def _numbered_arguments(self, details: Mapping[str, Any]) -> int:
        arguments = {name: details[name] for name in _ARGUMENTS if name in details}
        try:
            text = repr(arguments)
        except RecursionError:  # nested deeper than any argument
            arguments, text = {"Input type": "nested"}, "nested"
        number = self._arguments.setdefault(text, len(self.recording.arguments))
        if number == len(self.recording.arguments):
            self.recording.arguments.append(arguments)
            self.n_chars += len(text)
        return number

    def _number(self, name: str) -> int:
        n_known = len(self.recording.names.texts)
        number = self.recording.names.number(name)
        if number == n_known:
            self.n_chars += len(name)
        return number

    def _thread(self, event: Mapping[str, Any]) -> int:
        """Ranks that were put into one file differ in their process."""
        key = tuple(value if isinstance(value, (int, str)) else "" for value in (event.get("pid"), event.get("tid")))
        return self._threads.setdefault(key, len(self._threads))

    def _place(self, event: Mapping[str, Any], details: Mapping[str, Any]) -> int:
        device, stream = (_id({"": details.get(key, event.get(other))}, "") for key, other in _PLACE)
        number = self._places.setdefault((device, stream), len(self._places))
        if number == len(self.recording.places):
            self.recording.places.append((device, stream))
        return number


#: The device and its stream; older files have them as process and thread of the event alone.
_PLACE = (("device", "pid"), ("stream", "tid"))


#: Below 2**63, which a column holds; nanoseconds since 1970, as some writers have them, are 2e18.
_LARGEST = 9e18


def _name(event: Mapping[str, Any]) -> str | None:
    name = event.get("name")
    return name[:MAX_NAME] if isinstance(name, str) and name else None


def _details(event: Mapping[str, Any]) -> Mapping[str, Any]:
    details = event.get("args")
    return details if isinstance(details, dict) else {}


def _number(value: Any) -> float | None:
    """A number that is no infinity and no NaN; some writers put them in quotes."""
    if type(value) is str:
        try:
            value = float(value)
        except ValueError:
            return None
    if type(value) is not float and type(value) is not int:
        return None
    return float(value) if -_LARGEST < value < _LARGEST else None


def _id(details: Mapping[str, Any], *names: str) -> int:
    """The first of the names that is there, as a number; 0, which no profiler gives, where there is none."""
    for name in names:
        if name in details:
            value = _number(details[name])
            return int(value) if value is not None else 0
    return 0
