"""What an answer of the story is made of. Data only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.report.legend import STATUS_TEXTS
from audit.schema import Status

#: ``open``: this run cannot say, or not yet.
Tone: TypeAlias = Literal["good", "bad", "open"]
#: What stands before a point: a status, or that another device does it in less time or in more.
Mark: TypeAlias = Status | Literal["dearer", "cheaper"]
#: One character for each.
MARKS: Mapping[Mark, str] = {
    **{status: words.mark for status, words in STATUS_TEXTS.items()}, "dearer": "↑", "cheaper": "↓",
}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One line below an answer: its mark, what, how much, and the anchor of the evidence (``case-KEY``; may be empty).

    ``name`` is program text and set apart; ``amount`` stands at the end of the line.
    """

    mark: Mark
    name: str
    text: str
    amount: str = ""
    anchor: str = ""


@dataclass(frozen=True)
class Answer:
    """``short`` in a few words, then ``sentences`` with numbers and their denominators, then ``points``, worst first.

    ``n_left`` more points are not listed. ``commands`` are what to run to learn more. ``evidence`` are ids of sections
    of the page, best first; a page shows those that it has.
    """

    question: str
    tone: Tone
    short: str
    sentences: tuple[str, ...]
    points: tuple[Point, ...] = ()
    n_left: int = 0
    commands: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()


def answered(
    question: str,
    tone: Tone,
    short: str,
    sentences: list[str],
    evidence: tuple[str, ...],
    points: list[Point] | None = None,
    commands: tuple[str, ...] = (),
    most: int = 5,
) -> Answer:
    """An answer with at most ``most`` of its points; sentences that are empty are left out."""
    every = points or []
    said = tuple(sentence for sentence in sentences if sentence)
    return Answer(question, tone, short, said, tuple(every[:most]), max(0, len(every) - most), commands, evidence)
