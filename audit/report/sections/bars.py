"""Bars of segments by status: coverage by its denominators, and the ops that cost most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from audit.report import text
from audit.schema import Status


@dataclass(frozen=True)
class Segment:
    """A piece of a bar: ``start`` and ``width`` in percent of the bar's length, ``text`` its amount with unit."""

    status: Status
    amount: float
    text: str
    start: float
    width: float


@dataclass(frozen=True)
class Bar:
    """A labelled bar of segments; ``amount`` is its own total, ``anchor`` where a click leads."""

    label: str
    amount: float
    amount_text: str
    segments: tuple[Segment, ...]
    anchor: str = ""


def segments(
    unit: str, shares: Iterable[tuple[Status, float]], total: float, least_percent: float = 0.0
) -> tuple[Segment, ...]:
    """Segments whose widths are shares of ``total``, none below ``least_percent``."""
    present = [(status, amount) for status, amount in shares if amount > 0 and total > 0]
    widths = [max(100 * amount / total, least_percent) for _, amount in present]
    shrink = min(1.0, 100 / sum(widths)) if widths else 1.0
    found, start = [], 0.0
    for (status, amount), width in zip(present, (width * shrink for width in widths), strict=True):
        found.append(Segment(status, amount, text.amount_text(unit, amount), round(start, 3), round(width, 3)))
        start += width
    return tuple(found)
