"""SUP1xx: a valid case that the device raised on, crashed on, hung on, or was left broken by."""

from __future__ import annotations

from collections.abc import Iterator

from audit.knowledge.signals import match_signal
from audit.rules.thresholds import Thresholds
from audit.rules.wording import ending, first_line
from audit.run_records import RunHeader
from audit.schema import Case, Measurement, Outcome
from audit.verdicts import Finding

#: What became of the second try, by ``Outcome.confirmed``; the outcome itself is always that of the last try.
AGAIN = {
    True: "and so again alone in a fresh process",
    False: "alone in a fresh process; at first it failed in another way",
    None: "not tried again",
}


def raised(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """SUP101: an exception, with what the message is known to mean."""
    outcome = measurement.device
    if outcome.kind != "raised":
        return
    signal = match_signal(outcome.message)
    what = "has no kernel for this" if outcome.missing_kernel else f"raised {outcome.error_type or 'an error'}"
    message = f"the device {what}: {first_line(outcome.message)}"
    if signal is not None and signal.meaning:
        message += f"; {first_line(signal.meaning, 160)}"
    yield Finding(
        "SUP101",
        "unsupported",
        message,
        {
            "error_type": outcome.error_type,
            "missing_kernel": outcome.missing_kernel,
            "device_error": outcome.device_error,
            "signal_class": signal.signal_class if signal else None,
        },
    )


def crashed(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """SUP102: the process died. A case that passed when tried again alone is INC908 instead."""
    outcome = measurement.device
    if outcome.kind != "crashed":
        return
    last = _last_words(outcome)
    yield Finding(
        "SUP102",
        "unsupported",
        f"the process died {ending(outcome.signal, outcome.exit_code)}, {AGAIN[outcome.confirmed]}"
        + (f": {last}" if last else ""),
        {"signal": outcome.signal, "exit_code": outcome.exit_code, "confirmed": outcome.confirmed},
    )


def hung(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """SUP103: no answer within the limit. A hang is not repeated by default: the second may need a power-off."""
    outcome = measurement.device
    if outcome.kind != "hung":
        return
    limit = f" within {outcome.limit_s:g} s" if outcome.limit_s is not None else ""
    stage = f" ({outcome.stage})" if outcome.stage else ""
    yield Finding(
        "SUP103",
        "unsupported",
        f"the device did not answer{limit}{stage}; {AGAIN[outcome.confirmed]}",
        {"limit_s": outcome.limit_s, "stage": outcome.stage, "confirmed": outcome.confirmed},
    )


def poisons(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """SUP105: the op returned, and a known op failed after it. After a device error that would be no news."""
    outcome = measurement.device
    if (
        measurement.canary == "failed"
        and not outcome.device_error
        and outcome.kind in ("ok", "raised", "out_of_memory")
    ):
        yield Finding(
            "SUP105",
            "unsupported",
            "after this op a known op no longer gives its answer: it damages memory or the device's state",
            {"outcome": outcome.kind},
        )


def started_only(case: Case) -> Finding:
    """SUP104: for a case that was begun in a run that ended there."""
    return Finding(
        "SUP104",
        "unsupported",
        "crashed or hung, unconfirmed: the audit ended while this case ran",
        {"confirmed": False},
    )


def _last_words(outcome: Outcome) -> str:
    """The line of stderr or message that tells most: a known text, else a fault line, else the message."""
    lines = [line for line in f"{outcome.message}\n{outcome.stderr}".splitlines() if line.strip()]
    known = [line for line in lines if match_signal(line) or "fault" in line.lower() or "HSA_STATUS" in line]
    return first_line(known[0] if known else outcome.message)
