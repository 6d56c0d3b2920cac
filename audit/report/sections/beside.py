"""This device beside another: which op costs more on which, and the kinds of call that make the difference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from audit.report import device_time, text
from audit.report.rows import safe_name
from audit.report.sections.section import Material, Section
from audit.verdicts import SideBySide, SideRow

#: Ops in the duel; the rest is one line.
MAX_OPS = 14
#: Times that differ by less are called even.
EVEN = 1.1


@dataclass(frozen=True)
class Duel:
    """An op on both devices: microseconds of a step, widths in percent of the longest, and who takes less.

    ``winner``: here, there, even. ``ratio``: how many times as long the slower one takes.
    """

    op: str
    anchor: str
    here_us: float
    there_us: float
    here_width: float
    there_width: float
    winner: str
    ratio: float


@dataclass(frozen=True)
class Beside:
    """``duels`` are over calls that both have, dearest first; ``n_left`` smaller ops took ``left`` (here, there)."""

    beside: SideBySide
    duels: tuple[Duel, ...]
    n_left: int
    left: tuple[float, float]
    in_common: tuple[float, float]
    dearer: list[SideRow]
    cheaper: list[SideRow]


def beside(material: Material) -> Beside | None:
    """None where there is no other run."""
    judgement = material.judgement
    if judgement.beside is None:
        return None
    found = judgement.beside
    n_here = max(judgement.run.header.source.n_steps or 1, 1)
    n_there = max(found.other.source.n_steps or 1, 1)
    by_op: dict[str, list[float]] = {}
    anchors: dict[str, str] = {}
    for row in found.rows:
        name = text.short_op(row.op).partition(".")[0]
        sums = by_op.setdefault(name, [0.0, 0.0])
        sums[0] += (row.here_us or 0.0) * row.n_here / n_here
        sums[1] += (row.there_us or 0.0) * row.n_there / n_there
        if row.keys:
            anchors.setdefault(name, f"case-{safe_name(row.keys[0])}")
    ranked = sorted(by_op.items(), key=lambda item: -max(item[1]))
    longest = max((max(sums) for sums in by_op.values()), default=0.0) or 1.0
    duels = tuple(_duel(name, anchors.get(name, ""), here, there, longest) for name, (here, there) in ranked[:MAX_OPS])
    dearer, cheaper = device_time.sides(found)
    return Beside(
        found,
        duels,
        max(0, len(ranked) - MAX_OPS),
        _sums(sums for _, sums in ranked[MAX_OPS:]),
        _sums(by_op.values()),
        dearer,
        cheaper,
    )


def _sums(pairs: Iterable[list[float]]) -> tuple[float, float]:
    pairs = list(pairs)
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def _duel(op: str, anchor: str, here: float, there: float, longest: float) -> Duel:
    slow, fast = max(here, there), min(here, there)
    ratio = slow / fast if fast > 0 else float("inf")
    winner = "even" if ratio < EVEN else "here" if here < there else "there"
    return Duel(op, anchor, here, there, _width(here, longest), _width(there, longest), winner, ratio)


def _width(us: float, longest: float) -> float:
    return round(max(100 * us / longest, 0.4), 2)


def _title(material: Material) -> str:
    other = material.judgement.beside
    return f"Beside {text.one_line(other.other.device.name, 80)}" if other is not None else ""


SECTION = Section("beside", _title, beside)
