"""The local engine: one lane of warm child processes for each device, all taking from one queue of cases."""

from __future__ import annotations

import dataclasses
import os
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias, TypeVar

from audit.device.places import Place, places, with_library_files
from audit.errors import AuditError
from audit.replay.child import Stopped
from audit.replay.engine import DeviceLost, Event, ReplaySettings, TrialEvent, Trials
from audit.replay.folder import SpoolFolder
from audit.replay.lane import Lane
from audit.replay.work import Work
from audit.schema import Case, Ceilings, DeviceInfo

T = TypeVar("T")

#: How soon a lane whose event nobody takes notices that the replay is over.
_ENDED_INTERVAL_S = 0.2


@dataclass(frozen=True)
class _Turn:
    """An event on its way out; the lane goes on when it is ``taken``."""

    event: Any
    taken: threading.Event


@dataclass(frozen=True)
class _End:
    """A lane has no more to do, or failed with ``error``."""

    error: BaseException | None = None


_Turns: TypeAlias = "queue.SimpleQueue[_Turn | _End]"


class Pool:
    """Replays cases on this machine's devices; see ``audit.replay.engine.Engine``."""

    def __init__(self, settings: ReplaySettings) -> None:
        self._settings = settings
        self._spool = SpoolFolder()
        self._folder = self._spool.path
        self._stop = threading.Event()
        self._info: DeviceInfo | None = None
        self._lanes: list[_Driven] = []
        try:
            found = places(settings.device)
            shared = _share_of(settings, len(found))
            for number, place in enumerate(found):
                folder = self._lane_folder(number)
                self._lanes.append(_Driven(shared, folder, with_library_files(place, folder), self._stop))
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the children and removes the spool folder; safe to call twice."""
        self._stop.set()
        for lane in self._lanes:
            lane.close()
        self._spool.remove()

    def device_info(self) -> DeviceInfo:
        """The device that all lanes have; see ``Engine.device_info``. Lanes on another kind are given up."""
        if self._info is None:
            self._info = self._matched()
        return self._info

    def ceilings(self) -> Ceilings | None:
        """What the first device can do at most; see ``Engine.ceilings``."""
        self.device_info()
        return self._lanes[0].ask(Lane.ceilings).result()

    def _matched(self) -> DeviceInfo:
        answers = [lane.ask(Lane.device_info) for lane in self._lanes]
        first, *others = self._lanes
        info = answers[0].result()
        left_out = []
        for number, (lane, answer) in enumerate(zip(others, answers[1:], strict=True), start=1):
            problem = _mismatch(info, answer)
            if problem:
                left_out.append(f"device {number}: {problem}")
                lane.close()
        self._lanes = [first, *(lane for lane in others if not lane.closed)]
        if len(answers) == 1:
            return info
        shown = {"n_devices": str(len(self._lanes)), **({"left_out": "; ".join(left_out)} if left_out else {})}
        return dataclasses.replace(info, properties={**info.properties, **shown})

    def replay(self, cases: Sequence[Case], enough: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Events; see ``Engine.replay``. Closing the iterator early leaves the children warm."""
        if len(self._lanes) > 1:
            self.device_info()  # two kinds of device must not share a run
        over = threading.Event()
        work = Work(cases, self._settings.lookahead_bytes, lambda: self._ended(over) or enough())
        lost: list[str] = []
        for event in self._events(self._lanes, lambda lane: lane.replay(work), over):
            if isinstance(event, DeviceLost):
                lost.append(event.reason)
            else:
                yield event
        if lost and (work.is_left or len(lost) == len(self._lanes)):
            yield DeviceLost("; ".join(dict.fromkeys(lost)))

    def try_instead(self, plan: Iterable[Trials], enough: Callable[[], bool] = lambda: False) -> Iterator[TrialEvent]:
        """Events; see ``Engine.try_instead``. On the first device that is not lost."""
        driven = next((lane for lane in self._lanes if not lane.ask(Lane.is_lost).result()), None)
        if driven is None:
            return
        over = threading.Event()

        def tried(lane: Lane) -> Iterator[TrialEvent]:
            return lane.try_instead(plan, lambda: self._ended(over) or enough())

        yield from self._events([driven], tried, over)

    def _ended(self, over: threading.Event) -> bool:
        return over.is_set() or self._stop.is_set()

    def _events(
        self, lanes: Sequence[_Driven], work: Callable[[Lane], Iterator[T]], over: threading.Event
    ) -> Iterator[T]:
        """What the lanes do, event by event; ``over`` is set when nobody takes more, or there is no more."""
        turns: _Turns = queue.SimpleQueue()
        n_running = len(lanes)
        for lane in lanes:
            lane.drive(work, turns, lambda: self._ended(over))
        try:
            while n_running:
                turn = turns.get()
                if isinstance(turn, _End):
                    n_running -= 1
                    if turn.error is not None:
                        raise turn.error
                    continue
                yield turn.event
                turn.taken.set()
        finally:
            over.set()

    def _lane_folder(self, number: int) -> Path:
        folder = self._folder / f"lane-{number}"
        folder.mkdir()
        return folder


class _Driven:
    """A lane and the thread that all its calls run on."""

    def __init__(self, settings: ReplaySettings, folder: Path, place: Place, stop: threading.Event) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=folder.name)
        self._lane = self._thread.submit(Lane, settings, folder, place, stop)
        self.closed = False

    def ask(self, question: Callable[[Lane], T]) -> Future[T]:
        """What the lane answers, once it is there; the lanes start side by side."""
        return self._thread.submit(lambda: question(self._lane.result()))

    def drive(self, work: Callable[[Lane], Iterator[object]], turns: _Turns, ended: Callable[[], bool]) -> None:
        """Starts on what ``work`` has the lane do; every event goes to ``turns``, and an _End at last."""

        def run() -> None:
            try:
                _hand_over(work(self._lane.result()), turns, ended)
            except Stopped:
                turns.put(_End())
            except BaseException as error:  # noqa: BLE001  # whatever it is, it is raised again where events are read
                turns.put(_End(error))
            else:
                turns.put(_End())

        self._thread.submit(run)

    def close(self) -> None:
        """Ends the lane's children and its thread; safe to call twice."""
        if self.closed:
            return
        self.closed = True
        if self._lane.exception() is None:
            self._thread.submit(self._lane.result().close)
        self._thread.shutdown()


def _hand_over(events: Iterator[object], turns: _Turns, ended: Callable[[], bool]) -> None:
    """Hands out one event after the other, each only when the one before was taken."""
    for event in events:
        turn = _Turn(event, threading.Event())
        turns.put(turn)
        while not turn.taken.wait(_ENDED_INTERVAL_S):
            if ended():
                return


def _mismatch(info: DeviceInfo, answer: Future[DeviceInfo]) -> str:
    """Why a lane cannot share a run with one on ``info``, or an empty string."""
    try:
        other = answer.result()
    except AuditError as error:
        return str(error)
    if (other.name, other.arch) == (info.name, info.arch):
        return ""
    return f"{other.name} ({other.arch}) is another kind of device; audit it in a run of its own"


def _share_of(settings: ReplaySettings, n_lanes: int) -> ReplaySettings:
    """The settings of one lane among several: CPU threads are shared out where nobody said how many."""
    if n_lanes == 1:
        return settings
    n_threads = max(1, (os.cpu_count() or 1) // n_lanes)
    return dataclasses.replace(
        settings,
        n_reference_threads=settings.n_reference_threads or n_threads,
        n_device_threads=settings.n_device_threads or (None if settings.device.startswith("sim") else n_threads),
    )
