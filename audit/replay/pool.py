"""The local engine: one warm reference child and one warm device child, one case apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from audit.codec import decode, tensors_of
from audit.errors import UnfinishedError, UsageError
from audit.replay.device_child import Answer, DeviceChild, DeviceGone
from audit.replay.engine import DeviceLost, Event, ReplaySettings
from audit.replay.folder import SpoolFolder
from audit.replay.reference_child import ReferenceChild
from audit.replay.wire import Message
from audit.schema import Case, Comparison, DeviceInfo, Measurement, Outcome, Path, Started, Timing

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


class Pool:
    """Replays cases on this machine; see ``audit.replay.engine.Engine``.

    The reference of the next case is computed while the device runs the current one.
    """

    def __init__(self, settings: ReplaySettings) -> None:
        self._settings = settings
        self._spool = SpoolFolder()
        self._folder = self._spool.path
        self._reference = ReferenceChild(settings, self._folder)
        self._device = DeviceChild(settings, self._folder)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the children and removes the spool folder; safe to call twice."""
        self._reference.close()
        self._device.close()
        self._spool.remove()

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

    def replay(self, cases: Sequence[Case]) -> Iterator[Event]:
        """Events in order; see ``Engine.replay``. Closing the iterator early leaves the children warm."""
        for number, case in enumerate(cases):
            self._reference.submit(case)
            ready = self._ready(case)
            following = cases[number + 1] if number + 1 < len(cases) else None
            if following is not None and self._small(case) and self._small(following):
                self._reference.submit(following)
            if not ready.device_may_run:
                yield self._not_run(ready)
                self._discard(case)
                continue
            if not self._device.usable():
                yield DeviceLost(self._device.lost)
                return
            yield Started(case.key)
            yield self._measure(ready)
            self._discard(case)
            if self._device.lost:
                yield DeviceLost(self._device.lost)
                return

    def _small(self, case: Case) -> bool:
        return _operand_bytes(case) <= self._settings.lookahead_bytes

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
            ready.case.key, ready.outcome, device, operand_bytes=_operand_bytes(ready.case), notes=ready.notes
        )

    def _measure(self, ready: _Ready) -> Measurement:
        case = ready.case
        answer = self._device.measure(case, ready.job)
        comparisons, notes = self._compared(case, answer)
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
            operand_bytes=_operand_bytes(case),
            peak_bytes=answer.content.get("peak_bytes"),
            notes=(*ready.notes, *answer.notes, *notes),
        )

    def _compared(self, case: Case, answer: Answer) -> tuple[tuple[Comparison, ...], tuple[str, ...]]:
        if answer.outcome.kind != "ok":
            self._reference.forget(case)
            return (), ()
        outputs, index = answer.content["outputs"], answer.content["index"]
        reply = self._reference.compare(case, outputs, index)
        if "bug" in reply:
            return (), (f"the outputs were not compared: {reply['bug']}",)
        return tuple(decode(Comparison, item) for item in reply["comparisons"]), ()

    def _discard(self, case: Case) -> None:
        for kind in ("inputs", "outputs"):
            (self._folder / f"{case.key}.{kind}").unlink(missing_ok=True)


def _how(outcome: Outcome) -> str:
    texts = {"crashed": "crashed", "hung": "did not end in time", "out_of_memory": "ran out of memory"}
    return texts.get(outcome.kind, outcome.message)


def _operand_bytes(case: Case) -> int:
    """Bytes of the tensor arguments, each storage counted once; element sizes from the digits in the dtype's name."""
    storages: dict[tuple[int, bool], int] = {}
    for spec in tensors_of(case.args, case.kwargs, case.grads):
        digits = re.search(r"\d+", spec.dtype)
        nbytes = spec.extent * max(1, int(digits.group()) // 8 if digits else 1)
        number = spec.storage, spec.host
        storages[number] = max(storages.get(number, 0), nbytes)
    return sum(storages.values())
