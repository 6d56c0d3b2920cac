"""What the verdicts rest on: thresholds with their sources, settings of the run, what the statuses mean."""

from __future__ import annotations

from audit.report import text
from audit.report.sections.section import Material, Section, titled
from audit.rules.remedies import eligible
from audit.verdicts import Judgement


def alternatives_text(judgement: Judgement) -> str:
    """How much of what could be tried instead was tried, and what bounded it; empty where nothing was asked for."""
    settings = judgement.run.header.settings
    wanted = eligible(judgement) if "alternatives_limit_s" in settings else []
    if not wanted:
        return ""
    n_tried = sum(verdict.key in judgement.run.alternatives for verdict in wanted)
    begun = len(judgement.run.trying)
    return (
        f"Alternatives were tried for {n_tried:,} of {text.plural(len(wanted), 'case')} that have one, dearest first, "
        f"at most {settings.get('n_alternatives_cases', '?')} cases, {settings['alternatives_limit_s']} s."
        + (f" {text.plural(begun, 'of them was', 'of them were')} begun and never finished." if begun else "")
    )


def _build(material: Material) -> str:
    return alternatives_text(material.judgement)


SECTION = Section("thresholds", titled("Thresholds"), _build, is_half=True)
