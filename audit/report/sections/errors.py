"""Errors of all cases: a histogram of error over noise floor with the allowance, and what has no such ratio."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from audit.report import text
from audit.report.accuracy import Accuracy, Tally, allowances, tally
from audit.report.sections.section import Material, Section, titled

WIDTH, HEIGHT = 960.0, 230.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 12.0, 22.0, 40.0
#: Powers of two between which ratios are told apart; what lies outside is in the first or the last bar.
LOWEST, HIGHEST = -6, 12
#: Cases in the list of those that come nearest to the allowance, or lie beyond it.
MAX_ROWS = 12


@dataclass(frozen=True)
class Column:
    """One bar: cases with a ratio from ``low`` to ``high``, those ``within`` above those that ``differ``.

    Places and heights in the units of the drawing.
    """

    name: str
    n_within: int
    n_differ: int
    x: float
    width: float
    within: tuple[float, float]
    differ: tuple[float, float]


@dataclass(frozen=True)
class Errors:
    """``columns`` is empty where no case has a ratio. ``allowed`` are (place, value) of the allowances in use;
    ``apart`` (words, cases) are those without a ratio. ``nearest`` lie furthest out."""

    tally: Tally
    columns: tuple[Column, ...]
    ticks: tuple[tuple[float, str], ...]
    counts: tuple[tuple[float, str], ...]
    allowed: tuple[tuple[float, str], ...]
    apart: tuple[tuple[str, int], ...]
    nearest: tuple[Accuracy, ...]


def errors(material: Material) -> Errors | None:
    """None where the run has no case."""
    if not material.rows:
        return None
    found = material.accuracies
    drawn = [item for item in found if _is_drawn(item)]
    otherwise = sum(item.kind == "differs" and not _is_drawn(item) for item in found)
    counted = tally(found)
    apart = [
        ("the same, bit for bit", counted.by_kind["identical"]),
        ("different otherwise: NaN, Inf, bits, shape or elements that were never written", otherwise),
        ("within, of outputs without a ratio", sum(item.kind == "within" and item.ratio is None for item in found)),
        *((f"not compared: {why}", n) for why, n in counted.why_not),
    ]
    columns, counts = _columns(drawn)
    limits = sorted({limit for limit in allowances(material.judgement) if limit})
    used = {item.allowed for item in drawn}
    nearest = sorted(drawn, key=lambda item: -_beyond(item))[:MAX_ROWS]
    return Errors(
        counted,
        columns,
        tuple((_place(power), _power(power)) for power in range(LOWEST, HIGHEST + 1, 2)),
        counts,
        tuple((_place(math.log2(limit)), text.error_text(limit)) for limit in limits if limit in used),
        tuple((words, n) for words, n in apart if n),
        tuple(nearest),
    )


def _is_drawn(item: Accuracy) -> bool:
    """Not what differs by something else than its error: its ratio, over finite elements, would look good."""
    if item.ratio is None:
        return False
    return item.kind == "within" or (item.kind == "differs" and item.ratio > (item.allowed or 0.0))


def _beyond(item: Accuracy) -> float:
    return (item.ratio or 0.0) / (item.allowed or 1.0)


def bin_of(ratio: float) -> int:
    """The power of two below the ratio, in the range that is drawn."""
    if not ratio > 0:
        return LOWEST
    return HIGHEST if math.isinf(ratio) else min(HIGHEST, max(LOWEST, math.floor(math.log2(ratio))))


def _columns(drawn: list[Accuracy]) -> tuple[tuple[Column, ...], tuple[tuple[float, str], ...]]:
    """The bars, and (height, label) of a scale that is logarithmic: one case of a thousand still shows."""
    if not drawn:
        return (), ()
    counts = {power: [0, 0] for power in range(LOWEST, HIGHEST + 1)}
    for item in drawn:
        counts[bin_of(item.ratio or 0.0)][item.kind == "differs"] += 1
    most = max(sum(pair) for pair in counts.values())
    top = math.log2(most + 1)
    base = HEIGHT - BOTTOM

    def height(n: int) -> float:
        return round((base - TOP) * math.log2(n + 1) / top, 1)

    columns = []
    for power, (within, differ) in counts.items():
        whole, lower = height(within + differ), height(differ)
        x = _place(power)
        columns.append(
            Column(
                _range(power), within, differ, x + 1, _place(power + 1) - x - 2,
                (round(base - whole, 1), round(whole - lower, 1)), (round(base - lower, 1), lower),
            )
        )  # fmt: skip
    steps = sorted({n for n in (1, 3, 10, 30, 100, 300, 1000, 10_000) if n < most} | {most})
    ticks = tuple((round(base - height(n), 1), text.count_text(n)) for n in _apart(steps, height))
    return tuple(columns), ticks


def _apart(steps: list[int], height: Callable[[int], float]) -> list[int]:
    """The largest step, and those whose labels do not lie upon each other."""
    kept = [steps[-1]]
    for step in reversed(steps[:-1]):
        if height(kept[-1]) - height(step) >= 16:
            kept.append(step)
    return kept


def _place(power: float) -> float:
    return round(LEFT + (WIDTH - LEFT - RIGHT) * (power - LOWEST) / (HIGHEST + 1 - LOWEST), 1)


def _power(power: int) -> str:
    return f"1/{2**-power}" if power < 0 else f"{2**power:,}"


def _range(power: int) -> str:
    if power == LOWEST:
        return f"below {_power(power + 1)}"
    if power == HIGHEST:
        return f"{_power(power)} or more"
    return f"{_power(power)} to {_power(power + 1)}"


SECTION = Section("errors", titled("Errors of all cases"), errors)
