"""Coverage: a bar for each denominator, each with its total."""

from __future__ import annotations

from audit.report import text
from audit.report.legend import READING_ORDER
from audit.report.rows import coverage_of
from audit.report.sections.bars import Bar, segments
from audit.report.sections.section import Material, Section, titled
from audit.schema import Status
from audit.verdicts import Coverage, Judgement

#: One case of a thousand still shows in a coverage bar.
MIN_SEGMENT_PERCENT = 0.7
_UNIT_LABELS = {"ops": "Operators", "calls": "Calls", "device_time": "Device time", "cases": "Cases"}


def coverage_bars(judgement: Judgement) -> list[Bar]:
    """One bar per denominator that the judgement has; best first."""
    found = (coverage_of(judgement, unit) for unit in ("ops", "cases", "calls", "device_time"))
    return [
        Bar(
            _UNIT_LABELS[c.unit],
            c.total,
            _total_text(judgement, c),
            segments(c.unit, _shares(c), c.total, MIN_SEGMENT_PERCENT),
        )
        for c in found
        if c
    ]


def _total_text(judgement: Judgement, coverage: Coverage) -> str:
    total = text.amount_text(coverage.unit, coverage.total)
    n_recorded = judgement.run.header.n_recorded
    if coverage.unit == "calls" and coverage.total < n_recorded:
        return f"{total} of {n_recorded:,} recorded, the others are not audited"
    if coverage.unit != "device_time":
        return total
    n_timed = sum(verdict.device_us is not None for verdict in judgement.verdicts)
    n_steps = judgement.run.header.source.n_steps or 1
    of_steps = f" in {n_steps:,} steps" if n_steps > 1 else ""
    return f"{total}{of_steps}, over {n_timed:,} of {text.plural(len(judgement.verdicts), 'case')}"


def _shares(coverage: Coverage) -> list[tuple[Status, float]]:
    return [(status, coverage.by_status.get(status, 0.0)) for status in ("supported", *READING_ORDER[:-1])]


def _build(material: Material) -> list[Bar] | None:
    return coverage_bars(material.judgement) or None


SECTION = Section("coverage", titled("Coverage"), _build, is_half=True)
