"""The table of operators: a row per op that opens to its cases, a case opens to its evidence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from audit.report.bug_report import BugReport, bug_report
from audit.report.legend import READING_ORDER
from audit.report.rows import CaseRow, OpRow
from audit.report.sections.section import Material, Section, titled

#: Texts to show a finding again and to report it, which are long.
MAX_REPORTS = 100
#: Above so many cases those without a finding have no table of inputs: their signature tells most of it.
MAX_WITH_INPUTS = 2000


@dataclass(frozen=True)
class Operators:
    """``phases`` and ``dtypes`` are what the filters offer. ``reports`` are by the anchor of their case."""

    ops: list[OpRow]
    n_cases: int
    phases: list[str]
    dtypes: list[str]
    reports: Mapping[str, BugReport]
    has_all_inputs: bool


def _build(material: Material) -> Operators:
    rows = material.rows
    phases = _distinct(row.verdict.phase for row in rows)
    dtypes = _distinct(dtype for row in rows for dtype in row.dtypes)
    return Operators(material.ops, len(rows), phases, dtypes, _reports(material), len(rows) <= MAX_WITH_INPUTS)


def _reports(material: Material) -> dict[str, BugReport]:
    """Of the worst cases; the others have their script in the folder all the same."""
    header = material.judgement.run.header
    wanted = [row for row in material.rows if row.has_repro][:MAX_REPORTS]
    return {row.anchor: report for row in wanted if (report := bug_report(row, header)) is not None}


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def sort_keys(row: CaseRow | OpRow) -> dict[str, str]:
    """What the page's script sorts by, as data attributes; empty where there is nothing."""
    n_calls = row.verdict.n_calls if isinstance(row, CaseRow) else row.n_calls
    return {
        "data-rank": str(READING_ORDER.index(row.status)),
        "data-calls": str(n_calls),
        "data-us": "" if row.total_us is None else f"{row.total_us:.3f}",
        "data-ratio": _sortable(row.worst_ratio),
    }


def _sortable(ratio: float | None) -> str:
    """A number as JavaScript reads it, which knows Infinity only by overflow or by name."""
    if ratio is None or math.isnan(ratio):
        return ""
    return f"{ratio:.4g}" if math.isfinite(ratio) else "1e999"


SECTION = Section("operators", titled("Operators"), _build)
