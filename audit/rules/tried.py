"""FBK320: what the alternatives to a case gave, told beside its findings. Of no weight in the verdict.

An alternative was measured as a case is, and the same rules say which status it would have had.
"""

from __future__ import annotations

from collections.abc import Sequence

from audit.rules.remedies import PROGRAM_SETTINGS, instruction
from audit.rules.speed import TIMED
from audit.rules.wording import duration, plural, size
from audit.run_records import UNCHANGED, Alternative, Run
from audit.schema import STATUSES, Case, Measurement, Status
from audit.verdicts import Effect, Finding, Tried

#: A time that differs by less is the same; so is one within both sides' inter-quartile ranges.
FASTER_FRACTION = 0.9
#: How many alternatives that were no help a message names.
_N_NAMED = 4
#: Findings about errors that are larger than rounding makes them.
_LESS_EXACT = ("NUM201", "NUM212", "NUM213")


def tried(
    case: Case, run: Run, status: Status, judged: Sequence[tuple[Alternative, tuple[Finding, ...], Status]]
) -> tuple[Tried, ...]:
    """What each alternative did for a case of this status, the one that helps most first after the case as it was."""
    timed = run.header.device.backend in TIMED
    again = next((item for item in judged if item[0].trial.name == UNCHANGED), None)
    before = run.measurements[case.key] if again is None else again[0].measurement
    base = status if again is None else again[2]
    rows = [
        _row(alternative, findings, found, _effect(alternative, found, status, base, before, timed), timed)
        for alternative, findings, found in judged
    ]
    order: tuple[Effect, ...] = ("as before", "did not recur", "cures", "faster", "no help", "not available")
    return tuple(sorted(rows, key=lambda row: (order.index(row.effect), STATUSES.index(row.status), _rank_us(row))))


def _rank_us(row: Tried) -> float:
    """By time; another library has to be clearly faster to come before torch's own choice."""
    return (row.device_us or 0.0) * (FASTER_FRACTION if row.name == PROGRAM_SETTINGS else 1.0)


def _row(alternative: Alternative, findings: tuple[Finding, ...], status: Status, effect: Effect, timed: bool) -> Tried:
    measurement = alternative.measurement
    told = effect != "as before"  # else the findings of the case say it
    worst = next((f for f in findings if told and f.status == status != "supported"), None)
    known = next((f.known.title for f in findings if told and f.known is not None and f.code in _LESS_EXACT), "")
    ratios = [c.worst_ratio for c in measurement.comparisons if c.standard == "numeric"]
    ran = measurement.device.kind == "ok"
    return Tried(
        alternative.trial.name,
        alternative.trial.what,
        effect,
        status,
        measurement.device.message if effect == "not available" else worst.message if worst is not None else known,
        max(ratios, default=None),
        measurement.device_time.median_us if timed and ran and measurement.device_time is not None else None,
        measurement.peak_bytes if ran else None,
    )


def _effect(
    alternative: Alternative, found: Status, status: Status, base: Status, before: Measurement, timed: bool
) -> Effect:
    measurement = alternative.measurement
    if alternative.trial.name == UNCHANGED:
        return "did not recur" if STATUSES.index(found) < STATUSES.index(status) else "as before"
    if measurement.device.kind == "not_run":
        return "not available"
    if measurement.device.kind != "ok" or found == "inconclusive":
        return "no help"
    pace = _pace(measurement, before) if timed else 0
    better = STATUSES.index(found) < STATUSES.index(base)
    if better and not (pace < 0 and base in ("slow", "falling_back")):
        return "cures"  # another path that takes longer would be none
    return "faster" if pace > 0 and found == base else "no help"


def _pace(measurement: Measurement, before: Measurement) -> int:
    """1 faster, -1 slower, 0 the same within the noise, or not known."""
    now, then = measurement.device_time, before.device_time
    if now is None or then is None:
        return 0
    noise_us = now.iqr_us + then.iqr_us
    if now.median_us + noise_us < FASTER_FRACTION * then.median_us:
        return 1
    return -1 if then.median_us + noise_us < FASTER_FRACTION * now.median_us else 0


def note(case: Case, run: Run, rows: Sequence[Tried]) -> Finding | None:
    """FBK320: the alternative that helps most, with time and memory with and without; a note of no weight."""
    begun = sorted(trying.name for trying in run.trying if trying.key == case.key)
    again = next((row for row in rows if row.name == UNCHANGED), None)
    others = [row for row in rows if row.name != UNCHANGED and row.effect != "not available"]
    best = next((row for row in others if row.effect in ("cures", "faster")), None)
    parts = []
    if again is not None and again.effect == "did not recur":
        parts.append(f"run again as it was, it is {_words(again.status)}: the finding did not recur")
    if best is not None:
        verb = f"it is {_words(best.status)}" if best.effect == "cures" else "it is faster"
        behaviour = f" ({best.reason})" if best.reason and best.status == "supported" else ""
        parts.append(f"with {best.what} {verb}{behaviour}{_cost(best, again)}")
    no_help = [row for row in others if row.effect == "no help"]
    if no_help:
        named = ", ".join(row.what for row in no_help[:_N_NAMED])
        more = f" and {len(no_help) - _N_NAMED} more" if len(no_help) > _N_NAMED else ""
        parts.append(f"no help: {named}{more}")
    if begun:
        parts.append(f"the audit or the machine ended while {' and '.join(begun)} was tried, which is not done again")
    if not parts:
        return None
    return Finding(
        "FBK320",
        "supported",
        f"{plural(len(others), 'alternative')} tried; {'; '.join(parts)}",
        _data(case, run, best, again, len(others)),
    )


def _words(status: Status) -> str:
    return status.replace("_", " ")


def _cost(best: Tried, again: Tried | None) -> str:
    """``: 0.4 ms instead of 3.1 ms, 0.3 GiB instead of 2.1 GiB``, as far as both are known."""
    known = []
    if again is not None and best.device_us is not None and again.device_us is not None:
        known.append(f"{duration(best.device_us)} instead of {duration(again.device_us)}")
    elif best.device_us is not None:
        known.append(duration(best.device_us))
    if again is not None and best.peak_bytes is not None and again.peak_bytes is not None:
        known.append(f"{size(best.peak_bytes)} instead of {size(again.peak_bytes)} of memory")
    return f": {', '.join(known)}" if known else ""


def _data(
    case: Case, run: Run, best: Tried | None, again: Tried | None, n_tried: int
) -> dict[str, str | int | float | bool | None]:
    data: dict[str, str | int | float | bool | None] = {"n_tried": n_tried}
    if best is None:
        return data
    trial = next(a.trial for a in run.alternatives[case.key] if a.trial.name == best.name)
    data |= {"alternative": best.name, "effect": best.effect, "status_with": best.status}
    data |= {"device_us_with": best.device_us, "peak_bytes_with": best.peak_bytes}
    if again is not None:
        data |= {"device_us_without": again.device_us, "peak_bytes_without": again.peak_bytes}
    return {**data, "remedy": instruction(trial.change, case)}
