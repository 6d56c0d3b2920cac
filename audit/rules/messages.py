"""FBK304: what PyTorch and the ROCm libraries said while the op ran, in warnings and on file descriptor 2."""

from __future__ import annotations

from collections.abc import Iterator

from audit.knowledge.signals import Signal, match_signals
from audit.rules.thresholds import Thresholds
from audit.rules.wording import first_line
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding

#: Classes of the signals table that are told as notes: MIOpen's workspace warnings are at times cosmetic.
_NOTES = ("slow", "unsupported", "env", "crash", "info", "nondeterministic")


def said(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """Falling back where a message of that class came; other known messages are notes, expected ones nothing."""
    if measurement.device.kind != "ok":
        return
    told: set[str] = set()
    for text in (*measurement.device.warnings, measurement.device.stderr):
        for signal in match_signals(text):
            if signal.regex.pattern not in told and (
                signal.signal_class == "falling_back" or signal.signal_class in _NOTES
            ):
                told.add(signal.regex.pattern)
                yield _finding(signal, text)


def _finding(signal: Signal, text: str) -> Finding:
    match = signal.regex.search(text)
    line = next((line for line in text.splitlines() if signal.regex.search(line)), match[0] if match else text)
    return Finding(
        "FBK304",
        "falling_back" if signal.signal_class == "falling_back" else "supported",
        f"said: {first_line(line, 160)}" + (f"; {first_line(signal.meaning, 160)}" if signal.meaning else ""),
        {"class": signal.signal_class, "scope": signal.scope, "remedy": signal.action, "source": signal.source},
    )
