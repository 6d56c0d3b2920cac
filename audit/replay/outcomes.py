"""What an op raised, as an ``Outcome``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from audit.device.failure import classify
from audit.schema import Outcome

T = TypeVar("T")

#: torch lists every dispatch key in some messages; the first lines say what matters.
MESSAGE_LIMIT = 2000


def attempt(function: Callable[[], T]) -> T | Outcome:
    """The result of ``function``, or the outcome that stands for what it raised."""
    try:
        return function()
    except Exception as error:  # noqa: BLE001  # the loop's business: whatever an op raises is a measurement
        return outcome_of(error)


def outcome_of(error: BaseException) -> Outcome:
    """Sorts an exception: out of memory, no kernel, an error of the device itself, an op that sim lacks, or plain."""
    kind, message = type(error).__name__, str(error)
    if len(message) > MESSAGE_LIMIT:
        message = message[:MESSAGE_LIMIT] + " ..."
    failure = classify(error)
    if failure == "out_of_memory":
        return Outcome("out_of_memory", error_type=kind, message=message)
    if failure == "not_simulated":  # about the simulated device, and so about us
        return Outcome("not_run", error_type=kind, message=message)
    return Outcome(
        "raised",
        error_type=kind,
        message=message,
        missing_kernel=failure == "missing_kernel",
        device_error=failure == "device_error",
    )
