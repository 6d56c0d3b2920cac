"""Device time by library, what the device can do, and kernels that no case stands for."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report.device_time import TimeRow, UnownedRow, library_rows, unowned_rows
from audit.report.sections.section import Material, Section, titled
from audit.rules.rates import CeilingRow, ceiling_rows


@dataclass(frozen=True)
class Libraries:
    """``ceilings`` are those that the run measured."""

    rows: list[TimeRow]
    ceilings: list[CeilingRow]
    unowned: list[UnownedRow]


def _build(material: Material) -> Libraries | None:
    judgement = material.judgement
    header = judgement.run.header
    rows = library_rows(judgement)
    if not rows:
        return None
    return Libraries(rows, ceiling_rows(header.device, header.ceilings), unowned_rows(judgement))


SECTION = Section("libraries", titled("Device time by library"), _build)
