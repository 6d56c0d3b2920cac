"""What has no answer, and why."""

from __future__ import annotations

from audit.report import text
from audit.report.rows import CaseRow, case_rows
from audit.report.sections.section import Material, Section, titled
from audit.rules.not_audited import shown_reason
from audit.verdicts import Judgement


def left_out(judgement: Judgement) -> list[tuple[str, str, int]]:
    """(what, why, calls). Inconclusive cases by rule code, then what never became a case."""
    doubts: dict[str, list[CaseRow]] = {}
    for row in case_rows(judgement):
        if row.status == "inconclusive":
            doubts.setdefault(row.findings[0].code if row.findings else "", []).append(row)
    answers = [
        (
            f"{text.plural(len(rows), 'inconclusive case')} {code}",
            ("for example: " if len(rows) > 1 else "")
            + (rows[0].findings[0].message if rows[0].findings else "no reason given"),
            sum(row.verdict.n_calls for row in rows),
        )
        for code, rows in doubts.items()
    ]
    skipped = [
        (item.what, shown_reason(item), item.n_calls or item.n_seen) for item in judgement.run.header.not_audited
    ]
    return sorted(answers, key=lambda item: -item[2]) + sorted(skipped, key=lambda item: -item[2])


def _build(material: Material) -> list[tuple[str, str, int]]:
    return left_out(material.judgement)


SECTION = Section("left-out", titled("Not audited"), _build)
