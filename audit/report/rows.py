"""The rows that every reporter shows: one per case, rolled up to one per op, with totals that carry a denominator."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from audit.codec import tensors_of
from audit.report import text
from audit.report.legend import READING_ORDER
from audit.rules.coverage import worst
from audit.rules.lost_time import lost_us
from audit.schema import NOT_RECORDED, UNKNOWN_DTYPE, Case, Measurement, Status
from audit.verdicts import Coverage, Finding, Judgement, Verdict

_SAFE_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")


@dataclass(frozen=True)
class CaseRow:
    """A verdict joined with its case and measurement, where the run holds them.

    ``total_us`` is the device time of all calls. ``worst_ratio`` is the largest error of any output over its
    noise floor (see ``audit.comparison.Comparison``), None where nothing was compared numerically. ``notes`` are
    findings without weight. ``anchor`` is safe as an HTML id and as a file name.
    """

    verdict: Verdict
    case: Case | None
    measurement: Measurement | None
    anchor: str
    dtypes: tuple[str, ...]
    total_us: float | None
    worst_ratio: float | None

    @property
    def status(self) -> Status:
        return self.verdict.status

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those with weight, worst first."""
        weighty = [finding for finding in self.verdict.findings if finding.status != "supported"]
        return tuple(sorted(weighty, key=lambda finding: READING_ORDER.index(finding.status)))

    @property
    def has_repro(self) -> bool:
        """Whether ``audit.report.repro`` writes a script: a finding about the device, of a case that the run holds.

        What the audit could not say (left out, no reference) is nothing that a script could see again, and a call of
        which arguments were not recorded cannot be made.
        """
        return self.status not in ("supported", "inconclusive") and self.case is not None and _is_whole(self.case)

    @property
    def lost_us(self) -> float | None:
        """See ``audit.rules.lost_time``."""
        return lost_us(self.verdict)

    @property
    def remedy(self) -> str:
        """What was tried and helps most: ``cured with inputs made contiguous``; empty where nothing does."""
        best = next((item for item in self.verdict.tried if item.effect in ("cures", "faster")), None)
        return "" if best is None else f"{'cured' if best.effect == 'cures' else 'faster'} with {best.what}"

    @property
    def notes(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.verdict.findings if finding.status == "supported")


@dataclass(frozen=True)
class OpRow:
    """All cases of one op, worst first. ``status`` is the worst of its cases by the rules' own order."""

    op: str
    anchor: str
    status: Status
    cases: tuple[CaseRow, ...]
    n_calls: int
    total_us: float | None
    worst_ratio: float | None
    n_by_status: tuple[tuple[Status, int], ...]
    us_by_status: tuple[tuple[Status, float], ...]
    calls_by_status: tuple[tuple[Status, int], ...]


def safe_name(key: str) -> str:
    """``key`` where it is a plain name, else a digest: run files from strangers must not choose paths or ids."""
    return (
        key if _SAFE_KEY.fullmatch(key) else "case-" + hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:12]
    )


def case_rows(judgement: Judgement) -> list[CaseRow]:
    """One row per verdict: worst status first, then by device time, calls, op and key."""
    cases = {case.key: case for case in judgement.run.cases}
    rows = [
        _case_row(verdict, cases.get(verdict.key), judgement.run.measurements.get(verdict.key))
        for verdict in judgement.verdicts
    ]
    return sorted(rows, key=_severity)


def _case_row(verdict: Verdict, case: Case | None, measurement: Measurement | None) -> CaseRow:
    ratios = [c.worst_ratio for c in measurement.comparisons if c.standard == "numeric"] if measurement else []
    specs = tensors_of(case.args, case.kwargs, case.grads) if case else []
    return CaseRow(
        verdict=verdict,
        case=case,
        measurement=measurement,
        anchor=safe_name(verdict.key),
        dtypes=tuple(dict.fromkeys(spec.dtype for spec in specs)),
        total_us=verdict.total_us,
        worst_ratio=max(ratios, default=None),
    )


def _severity(row: CaseRow) -> tuple[int, float, int, str, str]:
    verdict = row.verdict
    return READING_ORDER.index(row.status), -(row.total_us or 0), -verdict.n_calls, verdict.op, verdict.key


def _is_whole(case: Case) -> bool:
    arguments = [*case.args, *(value for _, value in case.kwargs)]
    known = all(spec.dtype != UNKNOWN_DTYPE for spec in tensors_of(case.args, case.kwargs, case.grads))
    return known and NOT_RECORDED not in arguments


def op_rows(rows: Iterable[CaseRow]) -> list[OpRow]:
    """Rolls case rows up to ops, worst first."""
    by_op: dict[str, list[CaseRow]] = {}
    for row in rows:
        by_op.setdefault(row.verdict.op, []).append(row)
    ops = [_op_row(op, members) for op, members in by_op.items()]
    return sorted(ops, key=lambda op: (READING_ORDER.index(op.status), -(op.total_us or 0), -op.n_calls, op.op))


def _op_row(op: str, rows: list[CaseRow]) -> OpRow:
    present = [status for status in READING_ORDER if any(row.status == status for row in rows)]
    timed = [row.total_us for row in rows if row.total_us is not None]
    ratios = [row.worst_ratio for row in rows if row.worst_ratio is not None]
    return OpRow(
        op=op,
        anchor="op-" + hashlib.sha256(op.encode("utf-8", "replace")).hexdigest()[:10],
        status=worst(row.status for row in rows),
        cases=tuple(rows),
        n_calls=sum(row.verdict.n_calls for row in rows),
        total_us=sum(timed) if timed else None,
        worst_ratio=max(ratios, default=None),
        n_by_status=tuple((s, sum(row.status == s for row in rows)) for s in present),
        us_by_status=tuple((s, sum(row.total_us or 0.0 for row in rows if row.status == s)) for s in present),
        calls_by_status=tuple((s, sum(row.verdict.n_calls for row in rows if row.status == s)) for s in present),
    )


def coverage_of(judgement: Judgement, unit: str) -> Coverage | None:
    """The coverage with this unit, where the judgement has one with anything in it."""
    return next((c for c in judgement.coverage if c.unit == unit and c.total > 0), None)


def calls_text(judgement: Judgement, rows: Iterable[CaseRow]) -> str:
    """The calls of these cases: ``1,098 of 1,288 recorded calls``, since what is not audited was recorded, too."""
    n, of = sum(row.verdict.n_calls for row in rows), judgement.run.header.n_recorded
    return f"{n:,} of {text.plural(of, 'recorded call')}" if n < of else text.plural(n, "recorded call")


def status_counts(judgement: Judgement) -> dict[Status, int]:
    """Cases by status, in reading order, zeros included."""
    return {status: sum(v.status == status for v in judgement.verdicts) for status in READING_ORDER}
