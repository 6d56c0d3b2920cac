"""NUM212: an output that was too large to be compared element by element, by its random sketch."""

from __future__ import annotations

import math
from collections.abc import Iterator

from audit.comparison import Comparison, Sketch, SketchScale
from audit.rules.thresholds import Thresholds
from audit.rules.wording import number, place
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding


def sketched(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM212: somewhere, or all over, the errors are larger than rounding makes them."""
    if measurement.device.kind != "ok" or measurement.n_damaged_inputs:
        return
    for comparison in measurement.comparisons:
        if comparison.sketch is not None and comparison.sketch.scales:
            yield from _judged(comparison, comparison.sketch, thresholds)


def _judged(comparison: Comparison, sketch: Sketch, thresholds: Thresholds) -> Iterator[Finding]:
    allowed = allowed_variance(sketch, thresholds)
    worst, chance = standing_out(sketch, allowed, thresholds)
    if worst is None:
        return
    times = worst.excess / worst.n_summed
    yield Finding(
        "NUM212",
        "divergent",
        f"{comparison.name} is off {_where(sketch, worst)}: the errors there have {number(times)} times the "
        f"variance of {sketch.made_of}, {number(allowed)} times is allowed; a healthy output comes to this once in "
        f"10^{min(-chance, 300):.0f} (sketch of all {comparison.n_elements} elements)",
        {
            "output": comparison.name,
            "scale": worst.name,
            "place": place(worst.place),
            "excess": times,
            "n_summed": worst.n_summed,
            "allowed": allowed,
            "typical": sketch.typical,
            "log10_chance": max(chance, -300.0),
            "n_elements": comparison.n_elements,
        },
    )


def standing_out(sketch: Sketch, allowed: float, thresholds: Thresholds) -> tuple[SketchScale | None, float]:
    """The least likely sum, None where a healthy output may have it, and the decimal logarithm of its chance."""
    chances = {scale: log10_chance(scale, allowed) for scale in sketch.scales}
    worst = min(chances, key=lambda scale: chances[scale])
    limit = math.log10(thresholds.sketch_chance / len(chances)) if thresholds.sketch_chance > 0 else -math.inf
    return (worst if chances[worst] < limit else None), chances[worst]


def allowed_variance(sketch: Sketch, thresholds: Thresholds) -> float:
    """In units of one rounding. What most of the output has is allowed everywhere, up to ``allowed_roundings``."""
    return max(1.0, min(sketch.typical, thresholds.allowed_roundings)) * thresholds.sketch_slack


def log10_chance(scale: SketchScale, allowed: float) -> float:
    """Upper bound of the chance that any of the sums is as large: Chernoff's for chi-square, times their number."""
    n, total = scale.n_summed, scale.excess / allowed
    if n <= 0 or scale.n <= 0 or not total > n:  # false for NaN
        return 0.0
    if math.isinf(total):
        return -math.inf
    return min(0.0, math.log10(scale.n) - (total - n - n * math.log(total / n)) / 2 / math.log(10))


def _where(sketch: Sketch, scale: SketchScale) -> str:
    """In words: ``in the tile of 16 x 64 that begins at [32, 448]``."""
    if scale.name == "whole":
        return "all over"
    what = {
        "entry": f"{sketch.width} columns of one row",
        "row": "a whole row",
        "tile": f"a tile of 16 rows and {sketch.width} columns",
        "column": f"{sketch.width} whole columns",
    }.get(scale.name, scale.name)
    return f"in {what} from {place(scale.place)} on"
