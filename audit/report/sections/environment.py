"""Where the run was made: its source, device, versions and settings of the machine."""

from __future__ import annotations

from audit.report.sections.section import Material, Section, titled
from audit.run_records import RunHeader


def _build(material: Material) -> RunHeader:
    return material.judgement.run.header


SECTION = Section("environment", titled("Environment"), _build, is_half=True)
