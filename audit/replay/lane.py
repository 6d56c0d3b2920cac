"""One device of the pool: its warm child, a reference child of its own, and the cases that pass through both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path as FilePath

from audit.codec import decode
from audit.comparison import Comparison
from audit.device.places import Place
from audit.errors import UnfinishedError, UsageError
from audit.replay.changed_inputs import changed_for_replay
from audit.replay.device_child import Answer, DeviceChild, DeviceGone
from audit.replay.engine import DeviceLost, Event, ReplaySettings, TrialEvent, Trials
from audit.replay.reference_child import ReferenceChild
from audit.replay.wire import Message
from audit.replay.work import Work, operand_bytes
from audit.run_records import Alternative, Started, Trial, Trying
from audit.schema import Case, Ceilings, DeviceInfo, Measurement, Outcome, Path, Timing

_INVALID_INPUT = "the CPU reference did not accept the case, so the device was not touched"


@dataclass(frozen=True)
class _Ready:
    """A case that the reference side has prepared."""

    case: Case
    outcome: Outcome
    device_may_run: bool
    job: Message
    timing: Timing | None
    notes: tuple[str, ...]


class Lane:
    """Replays the cases that it takes from the work that all lanes share.

    The reference of the next case is computed while the device runs the current one. All calls but ``close`` belong to
    one thread: the kernel ends a lane's processes when the thread that started them ends. Once ``stop`` is set, every
    call raises Stopped within half a second.
    """

    def __init__(self, settings: ReplaySettings, folder: FilePath, place: Place, stop: threading.Event) -> None:
        self._settings = settings
        self._folder = folder
        self._reference = ReferenceChild(settings, folder, stop)
        self._device = DeviceChild(settings, folder, place, stop)

    def close(self) -> None:
        """Ends the children; safe to call twice."""
        self._reference.close()
        self._device.close()

    def ceilings(self) -> Ceilings | None:
        """What the device can do at most; see ``Engine.ceilings``."""
        try:
            return self._device.ceilings()
        except DeviceGone:  # the first case will say so
            return None

    def device_info(self) -> DeviceInfo:
        """The device as its child sees it. Raises UsageError (there is none) or UnfinishedError (it does not start)."""
        try:
            return self._device.ensure()
        except DeviceGone as gone:
            if gone.usage:
                raise UsageError(*gone.usage) from gone
            raise UnfinishedError(
                f"the device cannot be used: {gone}; check it with rocm-audit doctor", "device-lost"
            ) from gone

    def replay(self, work: Work) -> Iterator[Event]:
        """Events of one case after the other until the work is done, or a DeviceLost at the end.

        A case that could not be measured for want of the device goes back to the work, for another lane.
        """
        ahead: Case | None = None
        while (case := work.take(ahead)) is not None:
            self._reference.submit(case)
            ready = self._ready(case)
            ahead = self._prepare_ahead(case, work)
            if not ready.device_may_run:
                yield self._not_run(ready)
                work.done(case)
            elif self._device.usable():
                yield Started(case.key)
                yield self._measure(ready)
                work.done(case)
            else:
                work.give_back(case)
            self._discard(case)
            if self._device.lost:
                work.give_back(ahead)
                yield DeviceLost(self._device.lost)
                return

    def try_instead(self, plan: Iterable[Trials], enough: Callable[[], bool]) -> Iterator[TrialEvent]:
        """A Trying and an Alternative for each trial; see ``Engine.try_instead``."""
        for case, trials in plan:
            self._reference.submit(case)
            ready = self._ready(case)
            for trial in trials if ready.device_may_run else ():
                if enough():
                    break
                if not self._device.usable():
                    yield DeviceLost(self._device.lost)
                    return
                yield Trying(trial.key, trial.name)
                alternative = self._tried(ready, trial)
                yield alternative
                if alternative.measurement.device.kind == "hung":
                    return
            self._reference.forget(case)
            self._discard(case)

    def is_lost(self) -> bool:
        """Whether the device cannot be used any more."""
        return bool(self._device.lost)

    def _prepare_ahead(self, case: Case, work: Work) -> Case | None:
        """The case after ``case``, being prepared already where the memory for both is there."""
        if operand_bytes(case) > self._settings.lookahead_bytes:
            return None
        ahead = work.take_small()
        if ahead is not None:
            self._reference.submit(ahead)
        return ahead

    def _ready(self, case: Case) -> _Ready:
        answer = self._reference.prepared(case)
        outcome = decode(Outcome, answer["outcome"])
        timing = answer.get("timing")
        return _Ready(
            case,
            outcome,
            bool(answer["device_may_run"]),
            {name: answer[name] for name in ("index", "mutated", "output_bytes") if name in answer},
            None if timing is None else decode(Timing, timing),
            tuple(answer.get("notes", ())),
        )

    def _not_run(self, ready: _Ready) -> Measurement:
        reason = (
            "invalid input" if ready.outcome.kind == "raised" else f"no reference: the CPU run {_how(ready.outcome)}"
        )
        device = Outcome("not_run", message=f"{reason}: {_INVALID_INPUT}" if reason == "invalid input" else reason)
        return Measurement(
            ready.case.key, ready.outcome, device, operand_bytes=operand_bytes(ready.case), notes=ready.notes
        )

    def _measure(self, ready: _Ready) -> Measurement:
        case = ready.case
        answer = self._device.measure(case, ready.job)
        if answer.outcome.kind != "ok":
            self._reference.forget(case)
        return self._measurement(ready, answer, *self._compared(case, answer))

    def _tried(self, ready: _Ready, trial: Trial) -> Alternative:
        answer = self._device.try_instead(ready.case, trial.change, ready.job)
        changed = changed_for_replay(ready.case, trial.change)
        found = self._measurement(ready, answer, *self._compared(ready.case, answer, changed))
        self._discard(changed)
        return Alternative(trial, found)

    def _measurement(
        self, ready: _Ready, answer: Answer, comparisons: tuple[Comparison, ...], notes: tuple[str, ...]
    ) -> Measurement:
        case = ready.case
        return Measurement(
            key=case.key,
            reference=ready.outcome,
            device=answer.outcome,
            comparisons=comparisons,
            path=decode(Path, answer.content.get("path", {})),
            device_time=decode(Timing, answer.content["timing"]) if answer.content.get("timing") else None,
            reference_time=ready.timing,
            n_damaged_inputs=int(answer.content.get("n_damaged_inputs", 0)),
            guards_broken=tuple(answer.content.get("guards_broken", ())),
            canary=answer.canary,
            operand_bytes=operand_bytes(case),
            peak_bytes=answer.content.get("peak_bytes"),
            notes=(*ready.notes, *answer.notes, *notes),
        )

    def _compared(
        self, case: Case, answer: Answer, changed: Case | None = None
    ) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
        if answer.outcome.kind != "ok":
            return (), ()
        outputs, index = answer.content["outputs"], answer.content["index"]
        reply = self._reference.compare(case, outputs, index, changed)
        if "bug" in reply:
            return (), (f"the outputs were not compared: {reply['bug']}",)
        return tuple(decode(Comparison, item) for item in reply["comparisons"]), ()

    def _discard(self, case: Case) -> None:
        for kind in ("inputs", "outputs"):
            (self._folder / f"{case.key}.{kind}").unlink(missing_ok=True)


def _how(outcome: Outcome) -> str:
    texts = {"crashed": "crashed", "hung": "did not end in time", "out_of_memory": "ran out of memory"}
    return texts.get(outcome.kind, outcome.message)
