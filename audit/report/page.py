"""The HTML report: one file that opens from disk and loads nothing, readable without JavaScript and on paper.

The page is rendered here, row by row, and a small script of our own sorts and filters what stands in it. A table widget
(itables with DataTables, Tabulator) was tried on paper and left out: each embeds 300 to 900 kB of script, builds rows
from data so that nothing stands there without JavaScript or in print, and none nests cases under ops accessibly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from audit.report.rows import CaseRow, status_counts
from audit.report.sections import (
    beside,
    causes,
    coverage,
    dearest_ops,
    environment,
    error_along_step,
    errors,
    left_out,
    libraries,
    limits,
    modules,
    operators,
    roofline,
    thresholds,
)
from audit.report.sections.section import Material, Section
from audit.report.story import story
from audit.report.template_words import environment as template_environment
from audit.verdicts import Judgement

#: In the order in which they stand, below the story. Each has its template in ``templates/sections``.
SECTIONS: tuple[Section, ...] = (
    causes.SECTION,
    coverage.SECTION,
    dearest_ops.SECTION,
    beside.SECTION,
    roofline.SECTION,
    errors.SECTION,
    error_along_step.SECTION,
    modules.SECTION,
    limits.SECTION,
    libraries.SECTION,
    operators.SECTION,
    left_out.SECTION,
    environment.SECTION,
    thresholds.SECTION,
)
#: A case shows at most and at least so many characters of a log, and items of a list; in between, all logs and all
#: lists share a budget, so that 500 cases stay below 3 MB even where every one floods stderr. All is in run.jsonl.
LOG_LIMITS, LOG_BUDGET = (4000, 300), 300_000
ITEM_LIMITS, ITEM_BUDGET = (12, 3), 1800


@dataclass(frozen=True)
class Part:
    """A section as it stands on the page, with what its template shows."""

    anchor: str
    title: str
    content: Any
    is_half: bool


def render(judgement: Judgement) -> str:
    """The whole page."""
    material = Material(judgement)
    header = judgement.run.header
    return (
        template_environment(*_limits(material.rows))
        .get_template("report.html")
        .render(
            judgement=judgement,
            header=header,
            material=material,
            evidence=material.evidence,
            story=story(judgement),
            counts=status_counts(judgement),
            parts=parts(material),
        )
    )


def parts(material: Material) -> list[Part]:
    """The sections that this run has something for."""
    built = ((section, section.build(material)) for section in SECTIONS)
    return [
        Part(section.anchor, section.title(material), content, section.is_half)
        for section, content in built
        if content is not None
    ]


def _limits(rows: list[CaseRow]) -> tuple[int, int]:
    """(characters of a log, items of a list) that each case may show."""
    measured = [row.measurement for row in rows if row.measurement]
    logs = (len(log) for m in measured for o in (m.device, m.reference) for log in (o.message, o.stderr))
    lists = (len(items) for m in measured for items in (m.comparisons, m.device.warnings, m.path.kernels))
    n_loud = sum(length > LOG_LIMITS[1] for length in logs)
    n_long = sum(length > ITEM_LIMITS[1] for length in lists)
    return _share(LOG_BUDGET, n_loud, LOG_LIMITS), _share(ITEM_BUDGET, n_long, ITEM_LIMITS)


def _share(budget: int, n: int, limits: tuple[int, int]) -> int:
    most, least = limits
    return most if n == 0 else max(least, min(most, budget // n))
