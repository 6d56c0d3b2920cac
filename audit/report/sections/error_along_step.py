"""Error along the step that was played whole."""

from __future__ import annotations

from audit.report.drift import DriftSection, drift_section
from audit.report.sections.section import Material, Section, titled


def _build(material: Material) -> DriftSection | None:
    return drift_section(material.judgement)


SECTION = Section("drift", titled("Error along the step"), _build)
