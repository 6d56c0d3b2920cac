"""Totals by status over cases, ops, calls and device time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from audit.schema import STATUSES, Status
from audit.verdicts import Coverage, Verdict

#: For an op with several cases. ``inconclusive`` outranks ``supported`` alone: one case unknown, op not known to work.
WORST_LAST: tuple[Status, ...] = ("supported", "inconclusive", "slow", "falling_back", "divergent", "unsupported")


def worst(statuses: Iterable[Status]) -> Status:
    """The worst of at least one status."""
    return max(statuses, key=WORST_LAST.index)


def statuses_by_op(verdicts: Iterable[Verdict]) -> Mapping[str, Status]:
    """Each qualified overload with its worst status, in order of first appearance."""
    found: dict[str, list[Status]] = {}
    for verdict in verdicts:
        found.setdefault(verdict.op, []).append(verdict.status)
    return {op: worst(statuses) for op, statuses in found.items()}


def coverage(verdicts: tuple[Verdict, ...]) -> tuple[Coverage, ...]:
    """Units ``cases``, ``ops``, ``calls``, ``device_time`` (microseconds of all calls, over the cases with a time)."""
    return (
        _total("cases", ((verdict.status, 1) for verdict in verdicts)),
        _total("ops", ((status, 1) for status in statuses_by_op(verdicts).values())),
        _total("calls", ((verdict.status, verdict.n_calls) for verdict in verdicts)),
        _total("device_time", ((v.status, v.total_us) for v in verdicts if v.total_us is not None)),
    )


def _total(unit: str, weights: Iterable[tuple[Status, float]]) -> Coverage:
    by_status: dict[Status, float] = dict.fromkeys(STATUSES, 0.0)
    for status, weight in weights:
        by_status[status] += weight
    return Coverage(unit, sum(by_status.values()), by_status)


def percentage(part: float, total: float) -> str:
    """``12.5 %``; ``0 %`` and ``100 %`` only where they are exact, ``-`` of nothing."""
    if total <= 0:
        return "-"
    value = 100 * part / total
    if 0 < value < 0.1:
        return "< 0.1 %"
    if 99.9 < value < 100:
        return "> 99.9 %"
    return f"{value:.1f} %".replace(".0 %", " %")
