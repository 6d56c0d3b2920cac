"""What a step loses to the limits of its device."""

from __future__ import annotations

from audit.report.lost_time import StepLimits, step_limits
from audit.report.sections.section import Material, Section, titled


def _build(material: Material) -> StepLimits | None:
    return step_limits(material.judgement)


SECTION = Section("limits", titled("What the step could gain"), _build)
