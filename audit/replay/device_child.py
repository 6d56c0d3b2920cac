"""The device process as the pool uses it: replaced after a failure, failures confirmed alone in a fresh one."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from audit.codec import decode, encode
from audit.device.places import Place
from audit.replay.child import Child, Exit
from audit.replay.engine import ReplaySettings
from audit.replay.wire import ChannelClosed, DeadlinePassed, Message
from audit.run_records import Change
from audit.schema import Case, Ceilings, DeviceInfo, Outcome

#: How many of the cases that ran before a failure are named.
_N_PRECEDING = 5


class DeviceGone(Exception):
    """No fresh process can use the device. ``usage`` has message and slug where the device was asked for wrongly."""

    def __init__(self, reason: str, usage: tuple[str, str] | None = None) -> None:
        super().__init__(reason)
        self.usage = usage


@dataclass(frozen=True)
class Answer:
    """What one case did on the device; ``content`` is the child's message, empty when it did not live to send one."""

    outcome: Outcome
    canary: Literal["passed", "failed", "not run"] = "not run"
    notes: tuple[str, ...] = ()
    content: Message = field(default_factory=dict)

    @property
    def spoils_process(self) -> bool:
        """Whether the process that gave this answer must not run another case."""
        return self.outcome.kind in ("crashed", "hung") or self.outcome.device_error or self.canary == "failed"


class DeviceChild:
    """Runs cases one after another. ``lost`` is empty, or why the device cannot be used any more."""

    def __init__(self, settings: ReplaySettings, folder: Path, place: Place, stop: threading.Event) -> None:
        self._settings = settings
        self._folder = folder
        self._place = place
        self._stop = stop
        self._n_started = 0
        self._info: DeviceInfo | None = None
        self._ready = False
        self._spare: Child | None = None
        self.lost = ""
        self._child: Child | None = self._spawn()
        self._send_setup(self._child)

    # --- cases -----------------------------------------------------------------------------------------------------

    def measure(self, case: Case, job: Message) -> Answer:
        """Runs a case; a failure that spoils the process is tried again alone, a hang only with ``confirm_hangs``."""
        child = self._ready_child()
        preceding = list(child.preceding)
        first = self._attempt(child, case, job)
        if not first.spoils_process:
            return first
        self._drop()
        if not self.usable() or (first.outcome.kind == "hung" and not self._settings.confirm_hangs):
            return first
        return self._alone(case, job, first, preceding)

    def _alone(self, case: Case, job: Message, first: Answer, preceding: list[str]) -> Answer:
        """The case again in a fresh process, whose canary op has passed."""
        again = self._attempt(self._ready_child(), case, job)
        if again.spoils_process:
            self._drop()
            self.usable()
        failed, fails = _failure(first), _failure(again)
        if _class(first) == _class(again):
            confirmed = True if again.outcome.kind != "ok" else None
            return dataclasses.replace(again, outcome=dataclasses.replace(again.outcome, confirmed=confirmed))
        named = ", ".join(preceding[-_N_PRECEDING:]) or "nothing"
        note = f"at first it {failed}, alone in a fresh process it {fails}; before it in the first process ran: {named}"
        confirmed = False if first.outcome.kind != "ok" else None
        outcome = dataclasses.replace(again.outcome, confirmed=confirmed)
        return dataclasses.replace(again, outcome=outcome, notes=(*again.notes, note))

    def try_instead(self, case: Case, change: Change, job: Message) -> Answer:
        """Runs a case under a change, once: what an alternative breaks is not tried again."""
        answer = self._attempt(self._ready_child(), case, {"change": encode(change), **job}, "alternative")
        if answer.spoils_process:
            self._drop()
        return answer

    def _attempt(self, child: Child, case: Case, job: Message, command: str = "measure") -> Answer:
        """One run of a case within the limits of its stages."""
        stage, limit = "first call", self._settings.first_call_limit_s
        child.preceding.append(case.key)
        try:
            child.send({"command": command, "case": encode(case), **job}, limit)
            while True:
                message = child.receive(limit)
                if "stage" not in message:
                    return _answer(message)
                stage = message["stage"]
                steady = stage != "first call"
                limit = self._settings.steady_limit_s if steady else self._settings.first_call_limit_s
        except DeadlinePassed:
            exit_ = child.kill()
            outcome = Outcome("hung", stage=stage, limit_s=limit, stderr=child.stderr_tail())
        except ChannelClosed:
            exit_ = child.end()
            outcome = crash_outcome(exit_, child.stderr_tail())
        if exit_.unkillable:
            self.lost = f"the process that ran {case.key} cannot be killed; the driver holds it, restart the machine"
        return Answer(outcome)

    # --- processes -------------------------------------------------------------------------------------------------

    def ensure(self) -> DeviceInfo:
        """Waits until a process has opened the device and passed its canary op. Raises DeviceGone."""
        self._ready_child()
        if self._info is None:
            raise DeviceGone("the device process said nothing about its device")
        return self._info

    def ceilings(self) -> Ceilings | None:
        """What the device can do at most; None where times mean nothing there, or it fails to tell. Raises DeviceGone.

        A process that failed at it runs no case.
        """
        child = self._ready_child()
        try:
            child.send({"command": "ceilings"}, self._settings.first_call_limit_s)
            message = child.receive(self._settings.first_call_limit_s)
        except (DeadlinePassed, ChannelClosed):
            message = {"bug": "no answer"}
        if "bug" in message:
            self._drop()
            return None
        return decode(Ceilings, message["ceilings"]) if message["ceilings"] is not None else None

    def usable(self) -> bool:
        """Whether a process is ready for a case; if not, ``lost`` says why."""
        if self.lost:
            return False
        try:
            self._ready_child()
        except DeviceGone as gone:
            self.lost = str(gone)
        return not self.lost

    def _ready_child(self) -> Child:
        if self._child is None:
            self._child = self._spare if self._spare is not None and self._spare.alive else self._spawn()
            self._spare = self._spawn()  # failures come in groups, and a start takes seconds
            self._send_setup(self._child)
        if not self._ready:
            self._await_setup(self._child)
            self._ready = True
        return self._child

    def _await_setup(self, child: Child) -> None:
        limit = self._settings.start_limit_s
        try:
            message = child.receive(limit)
        except DeadlinePassed:
            self._drop()
            raise DeviceGone(f"a fresh process did not open the device within {limit:g} s") from None
        except ChannelClosed:
            exit_ = child.end()
            how = _failure(Answer(crash_outcome(exit_, "")))
            self._drop()
            raise DeviceGone(f"a fresh process {how} when it opened the device: {child.stderr_tail()[-500:]}") from None
        if "error" in message:
            self._drop()
            usage = (
                (message["error"].removesuffix(f" [{message['slug']}]"), message["slug"])
                if message.get("usage")
                else None
            )
            raise DeviceGone(message["error"], usage)
        if not message["canary"]:
            self._drop()
            raise DeviceGone("the canary op gave a wrong answer in a fresh process")
        self._info = decode(DeviceInfo, message["info"])

    def _spawn(self) -> Child:
        self._n_started += 1
        stderr = self._folder / f"device-{self._n_started}.stderr"
        return Child("device", stderr, self._folder, self._stop, self._place.environment)

    def _send_setup(self, child: Child) -> None:
        settings = self._settings
        setup = {
            "device": absolute_device(self._place.device),
            "folder": str(self._folder),
            "seed": settings.seed,
            "fills": settings.fill_bytes,
            "timing_budget_s": settings.timing_budget_s,
            "n_repeats": settings.n_repeats,
            "n_threads": settings.n_device_threads,
        }
        self._ready = False
        try:
            child.send(setup, settings.start_limit_s)
        except (ChannelClosed, DeadlinePassed):
            return  # found out, with its reason, by whoever waits for the answer

    def _drop(self) -> None:
        if self._child is not None and self._child.kill().unkillable and not self.lost:
            self.lost = "a device process cannot be killed; the driver holds it, restart the machine"
        self._child = None

    def close(self) -> None:
        """Ends both processes."""
        self._drop()
        if self._spare is not None:
            self._spare.kill()
            self._spare = None


def absolute_device(device: str) -> str:
    """A fault file's path made absolute, since the children have another working directory."""
    name, _, path = device.partition(":")
    return f"{name}:{Path(path).resolve()}" if name == "sim" and path else device


def _answer(message: Message) -> Answer:
    if "bug" in message:
        outcome = Outcome("not_run", error_type="bug", message=f"the audit itself failed: {message['bug']}")
        return Answer(outcome)
    return Answer(decode(Outcome, message["outcome"]), message["canary"], tuple(message["notes"]), message)


def crash_outcome(exit_: Exit, stderr: str) -> Outcome:
    """How a process that died over a case counts: killed for memory, taken down by its device, or crashed."""
    from audit.device.failure import stderr_shows_device_error  # with torch, which an auditor may not have loaded yet

    if exit_.oom_killed:
        return Outcome("out_of_memory", message="the kernel killed the process for want of memory", signal=exit_.signal)
    return Outcome(
        "crashed",
        signal=exit_.signal,
        exit_code=exit_.exit_code,
        stderr=stderr,
        device_error=stderr_shows_device_error(stderr),
    )


def _class(answer: Answer) -> str:
    """A crash and a device error confirm each other: which of the two it becomes is a matter of timing."""
    outcome = answer.outcome
    if outcome.kind == "crashed" or outcome.device_error:
        return "fatal"
    return f"{outcome.kind}, canary {answer.canary}"


def _failure(answer: Answer) -> str:
    """What a case did, in words for a note."""
    outcome = answer.outcome
    if outcome.kind == "crashed":
        how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        return f"crashed ({how})"
    if outcome.device_error:
        return "raised a device error"
    if outcome.kind == "ok":
        return "broke the canary op" if answer.canary == "failed" else "passed"
    return {"hung": "hung", "raised": "raised", "out_of_memory": "ran out of memory"}.get(outcome.kind, outcome.kind)
