"""What a section of the page is made from, and what it gives to its template."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from audit.report.accuracy import Accuracy, accuracy_of
from audit.report.legend import EvidenceText, evidence_text
from audit.report.rows import CaseRow, OpRow, case_rows, op_rows
from audit.verdicts import Judgement


@dataclass(frozen=True)
class Material:
    """A judgement with the rows that several sections show, made once."""

    judgement: Judgement

    @cached_property
    def rows(self) -> list[CaseRow]:
        """All cases, worst first."""
        return case_rows(self.judgement)

    @cached_property
    def ops(self) -> list[OpRow]:
        """The same by op, worst first."""
        return op_rows(self.rows)

    @cached_property
    def evidence(self) -> EvidenceText:
        """The banner of this run."""
        return evidence_text(self.judgement.run.header)

    @cached_property
    def accuracies(self) -> list[Accuracy]:
        """What was compared of each case, in the order of ``rows``."""
        return [accuracy_of(row, self.judgement) for row in self.rows]

    @property
    def is_timed(self) -> bool:
        """Whether a GPU gave the times of this run."""
        header = self.judgement.run.header
        return header.device.backend in ("hip", "cuda") and any(row.total_us is not None for row in self.rows)


@dataclass(frozen=True)
class Section:
    """A part of the page. ``anchor`` is its id and the name of its template; ``build`` gives what the template shows,
    None where the run has nothing for it. ``is_half``: two such stand side by side where there is room."""

    anchor: str
    title: Callable[[Material], str]
    build: Callable[[Material], Any]
    is_half: bool = False


def titled(title: str) -> Callable[[Material], str]:
    """A title that is the same for every run."""
    return lambda material: title
