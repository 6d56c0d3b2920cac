"""The child process of a replay: ``python -m audit.replay.worker ROLE READ_FD WRITE_FD PARENT_PID STDERR_FILE``.

ROLE is ``reference``, ``device`` or ``drift`` (a step played whole). The first message sets it up; each later one is a
case, or part of one, and is answered by one message with ``"done": true``. Messages are JSON lines on the two pipes;
stdout is never used.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from audit.codec import decode, encode
from audit.detect.stderr import redirect
from audit.errors import AuditError
from audit.replay.wire import Channel, ChannelClosed, Message
from audit.run_records import Change
from audit.schema import Case

Handler = Callable[[Message], Message]

_PR_SET_PDEATHSIG = 1
#: Times on the simulated device say nothing about any GPU, and are not judged.
_SIM_TIMING_BUDGET_S = 0.002


def main(argv: list[str]) -> None:
    """Serves until the auditor closes the channel."""
    role, read_fd, write_fd, parent, stderr_file = argv
    redirect(Path(stderr_file))
    _die_with(int(parent))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the auditor decides what ends
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    import torch  # noqa: F401  # ahead of the first message, so that a spare child is ready when it is needed

    channel = Channel(int(read_fd), int(write_fd))
    try:
        setup = channel.receive()
        handlers = _set_up(role, setup, channel)
        if handlers is None:
            return
        while True:
            message = channel.receive()
            channel.send(_answer(handlers[message["command"]], message))
    except ChannelClosed:
        return


def _die_with(parent: int) -> None:
    """No orphans: the kernel kills this process when the auditor's thread that started it ends (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the call above
        os._exit(0)


def _set_up(role: str, setup: Message, channel: Channel) -> dict[str, Handler] | None:
    try:
        handlers, answer = _ROLES[role](setup, channel)
    except AuditError as error:
        channel.send({"done": True, "error": str(error), "slug": error.slug, "usage": error.exit_code == 2})
        return None
    except Exception as error:  # noqa: BLE001  # the worker loop: a device that does not open is an answer, not a crash
        channel.send({"done": True, "error": f"{type(error).__name__}: {error}"})
        return None
    channel.send({"done": True, **answer})
    return handlers


def _answer(handler: Handler, message: Message) -> Message:
    try:
        return {"done": True, **handler(message)}
    except Exception as error:  # noqa: BLE001  # the worker loop: our own bug in one case must not end the audit
        import traceback

        place = traceback.extract_tb(error.__traceback__)[-1]
        return {"done": True, "bug": f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"}


# --- roles -----------------------------------------------------------------------------------------------------


def _reference_handlers(setup: Message, channel: Channel) -> tuple[dict[str, Handler], Message]:
    from audit.replay.reference import Reference

    if setup["memory_bytes"] is not None:
        resource.setrlimit(resource.RLIMIT_AS, (setup["memory_bytes"], setup["memory_bytes"]))
    folder = Path(setup["folder"])
    values = None if setup["values"] is None else Path(setup["values"])
    reference = Reference(values, folder, setup["seed"], setup["n_threads"])

    def prepare(message: Message) -> Message:
        return reference.prepare(decode(Case, message["case"]))

    def compare(message: Message) -> Message:
        index = {name: (start, length) for name, (start, length) in message["index"].items()}
        path = folder / f"{message.get('changed', message['key'])}.outputs"
        found = reference.compare(message["key"], message["outputs"], path, index, "changed" in message)
        return {"comparisons": found}

    def forget(message: Message) -> Message:
        reference.forget(message["key"])
        return {}

    return {"prepare": prepare, "compare": compare, "forget": forget}, {}


def _device_handlers(setup: Message, channel: Channel) -> tuple[dict[str, Handler], Message]:
    import torch

    from audit.detect.registry import DETECTORS
    from audit.device.registry import open_device
    from audit.replay.canary import canary_passes
    from audit.replay.measure import DeviceSide

    torch.set_warn_always(True)
    device = open_device(setup["device"])
    detectors = [make() for make in DETECTORS]
    info = device.info()
    # A simulated device computes on the cores that the reference needs.
    n_threads = setup["n_threads"] or (1 if info.backend == "sim" else torch.get_num_threads())
    budget_s = min(setup["timing_budget_s"], _SIM_TIMING_BUDGET_S if info.backend == "sim" else math.inf)
    first, second = setup["fills"]
    folder, n_repeats = Path(setup["folder"]), setup["n_repeats"]
    side = DeviceSide(device, detectors, folder, setup["seed"], (first, second), budget_s, n_threads, n_repeats)
    canary = canary_passes(device)

    def say(stage: str) -> None:
        channel.send({"stage": stage})

    def measure(message: Message) -> Message:
        return side.measure(decode(Case, message["case"]), message, say)

    def alternative(message: Message) -> Message:
        case, change = decode(Case, message["case"]), decode(Change, message["change"])
        return side.measure_changed(case, change, message, say)

    def ceilings(message: Message) -> Message:
        return {"ceilings": encode(device.ceilings())}

    return {"measure": measure, "alternative": alternative, "ceilings": ceilings}, {
        "info": encode(info),
        "canary": canary,
    }


def _drift_handlers(setup: Message, channel: Channel) -> tuple[dict[str, Handler], Message]:
    import torch

    from audit.device.registry import open_device
    from audit.drift_records import DriftStarted, DriftStep
    from audit.replay.canary import canary_passes
    from audit.replay.drift.lockstep import LockStep

    device = open_device(setup["device"])
    if setup["n_threads"]:
        torch.set_num_threads(setup["n_threads"])

    def say(record: DriftStarted | DriftStep) -> None:
        channel.send({"step" if isinstance(record, DriftStep) else "started": encode(record)})

    def play(message: Message) -> Message:
        step = LockStep(Path(setup["folder"]), device, say)
        channel.send({"n_calls": step.n_calls})
        deadline = math.inf if setup["budget_s"] is None else time.monotonic() + setup["budget_s"]
        return {"end": encode(step.play(lambda: time.monotonic() > deadline))}

    return {"play": play}, {"canary": canary_passes(device)}


_ROLES = {"reference": _reference_handlers, "device": _device_handlers, "drift": _drift_handlers}


if __name__ == "__main__":
    main(sys.argv[1:])
