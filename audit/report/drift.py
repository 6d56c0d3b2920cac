"""Error along the step that was played: a curve over its calls, and its modules in order, for page and terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from audit.drift_records import DriftStep
from audit.report import text
from audit.verdicts import DriftJudgement, Judgement, ModuleDrift

#: Rows of the table of modules; the file holds all.
MAX_MODULES = 40
#: Points of a curve; of more calls the worst of each stretch is drawn.
MAX_POINTS = 240
#: The curve's size in its own units.
WIDTH, HEIGHT = 720.0, 160.0


@dataclass(frozen=True)
class Curve:
    """Two lines over the calls, error above noise, logarithmic. ``start`` is where NUM221 says that error starts, as a
    place on the axis; ``ticks`` are (height, label)."""

    error: str
    noise: str
    ticks: tuple[tuple[float, str], ...]
    start: float | None
    n_calls: int


@dataclass(frozen=True)
class DriftSection:
    """What the page shows. ``n_left`` modules are in the file alone; ``start`` is the first call of the module that
    NUM221 names, with its phase."""

    judged: DriftJudgement
    curve: Curve | None
    modules: tuple[ModuleDrift, ...]
    n_left: int
    start: tuple[str, str] | None


def drift_section(judgement: Judgement) -> DriftSection | None:
    """None where no step was played."""
    judged, drift = judgement.drift, judgement.run.drift
    if judged is None or drift is None:
        return None
    found = next((finding for finding in judged.findings if finding.code == "NUM221"), None)
    start = None if found is None else (str(found.data["phase"]), str(found.data["module"]))
    shown = _shown(judged.modules, start)
    call = None if found is None else int(float(found.data["call"] or 0))
    return DriftSection(judged, _curve(drift.steps, call), shown, len(judged.modules) - len(shown), start)


def drift_lines(judgement: Judgement) -> list[str]:
    """For the terminal: how the step went, and why not to its end; what is wrong in it stands among the causes."""
    if judgement.drift is None:
        return []
    notes = [finding.message for finding in judgement.drift.findings if finding.code == "INC915"]
    return [f"  {line}" for line in (judgement.drift.sentence, *notes)]


def _shown(modules: Sequence[ModuleDrift], start: tuple[str, str] | None) -> tuple[ModuleDrift, ...]:
    """The first rows, but always that where error starts and the worst ones."""
    ranked = sorted(
        range(len(modules)),
        key=lambda i: ((modules[i].phase, modules[i].module) != start, -(modules[i].largest_ratio or 0.0)),
    )
    kept = {*range(MAX_MODULES // 2), *ranked[: MAX_MODULES // 2]}
    return tuple(row for number, row in enumerate(modules) if number in kept)


def _curve(steps: Sequence[DriftStep], start: int | None) -> Curve | None:
    """None where nothing was measured, or nothing was off by anything."""
    measured = [step for step in steps if step.error is not None and math.isfinite(step.error)]
    measured = [step for step in measured if step.error or step.noise]  # weights as they are say nothing
    stretch = max(1, -(-len(measured) // MAX_POINTS))
    points = [
        max(measured[n : n + stretch], key=lambda step: step.error or 0.0) for n in range(0, len(measured), stretch)
    ]
    values = [v for step in points for v in (step.error, step.noise) if v and math.isfinite(v)]
    if not values:
        return None
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)

    def x(index: int) -> float:
        return round(WIDTH * index / max(1, steps[-1].index), 1)

    def y(value: float | None) -> float:
        level = low if not value else min(high, max(low, math.log10(value)))
        return round(HEIGHT * (high - level) / (high - low), 1)

    every = max(1, (high - low) // 4)
    ticks = tuple((y(10.0**power), f"1e{power}") for power in range(low, high + 1, every))
    error = " ".join(f"{x(step.index)},{y(step.error)}" for step in points)
    noise = " ".join(f"{x(step.index)},{y(step.noise)}" for step in points)
    return Curve(error, noise, ticks, None if start is None else x(start), len(steps))


def ratio_text(ratio: float | None) -> str:
    """``1.2×``, and a dash where nothing was compared."""
    return "–" if ratio is None else f"{text.error_text(float(f'{ratio:.2g}'))}×"
