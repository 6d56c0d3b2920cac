"""The reference process as the pool uses it: work in order, one case ahead, replaced when it dies."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from audit.codec import encode
from audit.errors import UnfinishedError, UsageError
from audit.replay.child import Child, Exit
from audit.replay.engine import ReplaySettings
from audit.replay.wire import ChannelClosed, DeadlinePassed, Message
from audit.schema import Case, Outcome

#: Writing to the pipe blocks only while the child reads nothing; a message is far smaller than that needs.
_SEND_LIMIT_S = 60.0
#: How often a process is started, or a comparison tried, before that is given up.
_N_TRIES = 3


@dataclass(frozen=True)
class _Task:
    kind: Literal["setup", "prepare", "compare", "forget"]
    key: str = ""


class ReferenceChild:
    """Prepares cases and compares outputs. A case that kills or hangs the process gets that as its outcome; what the
    process knew of others is made again in the next one."""

    def __init__(self, settings: ReplaySettings, folder: Path, stop: threading.Event) -> None:
        self._settings = settings
        self._folder = folder
        self._stop = stop
        self._child: Child | None = None
        self._n_started = 0
        self._tasks: list[_Task] = []
        self._head_since = time.monotonic()
        self._answers: dict[str, Message] = {}
        self._knows: set[str] = set()
        self._n_deaths: Counter[str] = Counter()
        self._start()

    def submit(self, case: Case) -> None:
        """Asks for a case to be prepared; nothing happens if that was asked before."""
        if case.key not in self._answers and _Task("prepare", case.key) not in self._tasks:
            self._send(_Task("prepare", case.key), {"command": "prepare", "case": encode(case)})

    def prepared(self, case: Case) -> Message:
        """The answer to ``submit``: ``outcome``, ``device_may_run`` and, if it may, what the device side needs."""
        while case.key not in self._answers:
            self.submit(case)  # again where the process died over this case or an earlier one
            self._advance()
        return self._answers.pop(case.key)

    def compare(self, case: Case, outputs: Message, index: Message, changed: Case | None = None) -> Message:
        """``comparisons`` of what the device left in the spool, or a ``bug`` that says why there are none.

        The reference is dropped, except where the outputs are those of the case as ``changed``: others may follow.
        """
        task = _Task("compare", case.key)
        how = {} if changed is None else {"changed": changed.key}
        for _ in range(_N_TRIES):
            if case.key not in self._knows and "bug" in (reply := self._prepared_again(case)):
                return reply
            self._send(task, {"command": "compare", "key": case.key, "outputs": outputs, "index": index, **how})
            reply = {}
            while task in self._tasks:
                done, message = self._advance()
                reply = message if done == task else reply
            if reply and "failed" not in reply:
                if changed is None:
                    self._knows.discard(case.key)
                return reply
        return {"bug": "the reference process died while it compared them"}

    def _prepared_again(self, case: Case) -> Message:
        answer = self.prepared(case)
        return {} if answer["device_may_run"] else {"bug": "the reference could not be computed a second time"}

    def forget(self, case: Case) -> None:
        """Drops what the process keeps of a case that will not be compared."""
        if case.key in self._knows:
            self._knows.discard(case.key)
            self._send(_Task("forget", case.key), {"command": "forget", "key": case.key})

    def close(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None

    # --- the process -----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        settings = self._settings
        self._n_started += 1
        stderr = self._folder / f"reference-{self._n_started}.stderr"
        self._child = Child("reference", stderr, self._folder, self._stop)
        setup = {
            "folder": str(self._folder),
            "values": None if settings.values is None else str(settings.values.resolve()),
            "seed": settings.seed,
            "n_threads": settings.n_reference_threads,
            "memory_bytes": settings.reference_memory_bytes,
        }
        self._knows.clear()
        self._tasks = []
        self._send(_Task("setup"), setup)

    def _send(self, task: _Task, message: Message) -> None:
        if not self._tasks:
            self._head_since = time.monotonic()
        self._tasks.append(task)
        if self._child is not None:
            try:
                self._child.send(message, _SEND_LIMIT_S)
            except (ChannelClosed, DeadlinePassed):
                return  # the child is dead or stuck: whoever waits for the answer finds out how

    def _advance(self) -> tuple[_Task, Message]:
        """Waits for the oldest task, files its answer, and says what it was; never longer than the task's limit."""
        task = self._tasks[0]
        settings = self._settings
        limit = settings.start_limit_s if task.kind == "setup" else settings.reference_limit_s
        try:
            if self._child is None:
                raise ChannelClosed
            message = self._child.receive(self._head_since + limit - time.monotonic())
        except ChannelClosed:
            return task, self._failed(task, None)
        except DeadlinePassed:
            return task, self._failed(task, limit)
        self._tasks.pop(0)
        self._head_since = time.monotonic()
        self._n_deaths.pop("", None)
        if task.kind == "setup" and message.get("usage"):
            usage = message["error"].removesuffix(f" [{message['slug']}]"), message["slug"]
            raise UsageError(*usage)
        if task.kind == "setup" and "error" in message:
            raise UnfinishedError(f"the reference process cannot start: {message['error']}", "reference-lost")
        if task.kind == "prepare":
            self._knows.add(task.key)
            self._answers[task.key] = _bug_as_outcome(message)
        return task, message

    def _failed(self, task: _Task, limit_s: float | None) -> Message:
        """The process died (or was killed at its limit) over ``task``. A case that kills two processes is to blame."""
        child, self._child = self._child, None
        exit_ = Exit() if child is None else child.end() if limit_s is None else child.kill()
        stderr = "" if child is None else child.stderr_tail()
        self._n_deaths[task.key] += 1
        n_deaths = self._n_deaths[task.key]
        if task.kind == "setup" and (n_deaths >= _N_TRIES or limit_s is not None):
            raise UnfinishedError(f"the reference process does not start: {stderr or exit_}", "reference-lost")
        outcome = _outcome(exit_, limit_s, stderr)
        self._start()
        if task.kind == "prepare" and (limit_s is not None or n_deaths >= 2):
            confirmed = True if limit_s is None else None
            outcome = dataclasses.replace(outcome, confirmed=confirmed)
            self._answers[task.key] = {"outcome": encode(outcome), "device_may_run": False}
        return {"failed": encode(outcome)}


def _outcome(exit_: Exit, limit_s: float | None, stderr: str) -> Outcome:
    if limit_s is not None:
        return Outcome("hung", stage="steady", limit_s=limit_s, stderr=stderr)
    if exit_.oom_killed:
        return Outcome("out_of_memory", message="the kernel killed the reference process", signal=exit_.signal)
    return Outcome("crashed", signal=exit_.signal, exit_code=exit_.exit_code, stderr=stderr)


def _bug_as_outcome(message: Message) -> Message:
    if "bug" not in message:
        return message
    outcome = Outcome("not_run", error_type="bug", message=f"the audit itself failed: {message['bug']}")
    return {"outcome": encode(outcome), "device_may_run": False}
