"""The process that plays a tape, as the auditor sees it: its records as they come, and how it ended."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

from audit.codec import decode
from audit.device.places import places, with_library_files
from audit.drift_records import DriftEnd, DriftStarted, DriftStep
from audit.errors import UnfinishedError
from audit.replay.child import Child
from audit.replay.device_child import absolute_device, crash_outcome
from audit.replay.engine import ReplaySettings
from audit.replay.wire import ChannelClosed, DeadlinePassed, Message

Record: TypeAlias = "DriftStarted | DriftStep | DriftEnd"


def play(settings: ReplaySettings, folder: Path, budget_s: float | None = None) -> Iterator[Record]:
    """Plays the tape in ``folder`` on the first device that the settings name; the last record is a DriftEnd.

    A call that the device does not come back from stays a DriftStarted. Raises UnfinishedError where no process can
    open the device.
    """
    place = with_library_files(places(settings.device)[0], folder)
    child = Child("drift", folder / "drift.stderr", folder, threading.Event(), place.environment)
    try:
        setup = {"device": absolute_device(place.device), "folder": str(folder), "n_threads": settings.n_device_threads}
        _begin(child, {**setup, "budget_s": budget_s}, settings)
        yield from _records(child, settings)
    finally:
        child.kill()


def _begin(child: Child, setup: Message, settings: ReplaySettings) -> None:
    try:
        child.send(setup, settings.start_limit_s)
        message = child.receive(settings.start_limit_s)
        if "error" in message or not message["canary"]:
            problem = message.get("error", "the canary op gave a wrong answer")
            raise UnfinishedError(f"the step was not played: {problem.partition(' [')[0]}", "drift-not-played")
        child.send({"command": "play"}, settings.start_limit_s)
    except (ChannelClosed, DeadlinePassed):
        tail = child.stderr_tail()[-500:]
        raise UnfinishedError(
            f"the step was not played: a fresh process did not open the device {tail}", "drift-not-played"
        ) from None


def _records(child: Child, settings: ReplaySettings) -> Iterator[Record]:
    n_calls = n_steps = 0
    limit = settings.first_call_limit_s + settings.reference_limit_s
    try:
        while True:
            message = child.receive(limit)
            if "n_calls" in message:
                n_calls = message["n_calls"]
            elif "started" in message:
                yield decode(DriftStarted, message["started"])
            elif "step" in message:
                n_steps += 1
                yield decode(DriftStep, message["step"])
            elif "bug" in message:
                yield DriftEnd(n_calls, n_steps, reason=f"the audit itself failed: {message['bug']}")
                return
            else:
                yield decode(DriftEnd, message["end"])
                return
    except DeadlinePassed:
        yield DriftEnd(n_calls, n_steps, reason=f"the next call did not end within {limit:g} s")
    except ChannelClosed:
        outcome = crash_outcome(child.end(), child.stderr_tail())
        how = f"signal {outcome.signal}" if outcome.signal is not None else f"exit code {outcome.exit_code}"
        yield DriftEnd(n_calls, n_steps, reason=f"the process that played the step ended ({outcome.message or how})")
