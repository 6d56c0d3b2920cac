"""Root causes and checks of the machine that did not pass: one of them may explain hundreds of verdicts."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.sections.section import Material, Section, titled
from audit.run_records import PreflightCheck
from audit.verdicts import Finding


@dataclass(frozen=True)
class Causes:
    """What comes before any op."""

    causes: tuple[Finding, ...]
    troubles: tuple[PreflightCheck, ...]


def _build(material: Material) -> Causes | None:
    judgement = material.judgement
    troubles = tuple(check for check in judgement.run.header.preflight if check.result != "ok")
    return Causes(judgement.root_causes, troubles) if judgement.root_causes or troubles else None


SECTION = Section("first", titled("Look at this first"), _build)
