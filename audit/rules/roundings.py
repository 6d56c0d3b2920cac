"""NUM213: a narrow output, or a row, tile, head or channel of it, is coarser than its dtype; results were cut."""

from __future__ import annotations

from collections.abc import Iterator

from audit.comparison import CoarsePart, Comparison
from audit.rules.accuracy import allowed_ratio, judged
from audit.rules.dimensions import dimensions
from audit.rules.thresholds import Thresholds
from audit.rules.wording import number, place
from audit.run_records import RunHeader
from audit.schema import Case, Measurement
from audit.verdicts import Finding

#: Of fewer elements the CPU's rms error may be small by chance.
LEAST_ELEMENTS = 64


def coarser(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM213: each element is within the allowance, and all together they are further off than one rounding."""
    for comparison in judged(measurement):
        if not comparison.rounded_once or comparison.reference != "fp64" or comparison.n_elements < LEAST_ELEMENTS:
            continue
        if comparison.worst_ratio > thresholds.allowed_ratio or comparison.cpu_rms_error == 0.0:
            continue
        factor = comparison.rms_error / comparison.cpu_rms_error
        if factor > thresholds.coarser_rms:
            yield Finding(
                "NUM213",
                "divergent",
                f"{comparison.name} is coarser than its dtype: the rms error {number(comparison.rms_error)} is "
                f"{factor:.1f} times that of one rounding ({number(comparison.cpu_rms_error)}, the CPU's), allowed "
                f"{thresholds.coarser_rms:g}; each of {comparison.n_elements} elements is within its own allowance",
                {
                    "output": comparison.name,
                    "rms_error": comparison.rms_error,
                    "cpu_rms_error": comparison.cpu_rms_error,
                    "allowed": thresholds.coarser_rms,
                    "n_elements": comparison.n_elements,
                },
            )


#: Standard deviations that a scale must be away from 1; fewer may be chance.
_DEVIATIONS = 8.0


def coarse_parts(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM213: each element is within the allowance, and those of a part are together further off than one rounding."""
    for comparison in judged(measurement):
        part = _worst(comparison, thresholds)
        if part is None or part.ratio <= thresholds.coarser_rms or _is_told(comparison, thresholds):
            continue
        yield Finding(
            "NUM213",
            "divergent",
            f"{comparison.name} is coarser than its dtype {_where(part, case, comparison)}: the rms error of these "
            f"{part.n} elements is {part.ratio:.1f} times that of one rounding, allowed {thresholds.coarser_rms:g}; "
            "each of them is within its own allowance",
            {
                "output": comparison.name,
                "part": part.kind,
                "place": place(part.place),
                "n_part": part.n,
                "rms_ratio": part.ratio,
                "typical_ratio": comparison.typical_part,
                "allowed": thresholds.coarser_rms,
                "n_elements": comparison.n_elements,
            },
        )


def scaled(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM213: all over the output is too large or too small, by less than a single element may be off."""
    for comparison in judged(measurement):
        way = "large" if comparison.scale_error > 0 else "small"
        scale, allowed = abs(comparison.scale_error), thresholds.scale_error_steps * comparison.eps
        certain = comparison.n_elements >= LEAST_ELEMENTS and scale > _DEVIATIONS * comparison.scale_deviation
        if scale <= allowed or not certain or _is_told(comparison, thresholds):
            continue
        worst = _worst(comparison, thresholds)
        if worst is not None and worst.ratio > thresholds.coarser_rms:
            continue
        yield Finding(
            "NUM213",
            "divergent",
            f"{comparison.name} is {100 * scale:.2g} % too {way} all over, allowed {100 * allowed:.2g} %: rounding "
            f"errors would cancel; each of {comparison.n_elements} elements is within its own allowance",
            {
                "output": comparison.name,
                "scale_error": comparison.scale_error,
                "scale_deviation": comparison.scale_deviation,
                "allowed": allowed,
                "n_elements": comparison.n_elements,
            },
        )


def misrounded(case: Case, measurement: Measurement, header: RunHeader, thresholds: Thresholds) -> Iterator[Finding]:
    """NUM213: one operation that IEEE 754 defines, and too many results that are not the nearest number."""
    for comparison in judged(measurement):
        fraction = comparison.misrounded_fraction
        if comparison.rounding != "one operation" or comparison.n_elements < LEAST_ELEMENTS:
            continue
        if fraction > thresholds.misrounded_fraction and not _is_told(comparison, thresholds):
            yield Finding(
                "NUM213",
                "divergent",
                f"{comparison.name} is not rounded to the nearest number in {100 * fraction:.0f} % of "
                f"{comparison.n_elements} elements, allowed {100 * thresholds.misrounded_fraction:g} %: cut off, or "
                "rounded twice",
                {
                    "output": comparison.name,
                    "misrounded_fraction": fraction,
                    "allowed": thresholds.misrounded_fraction,
                    "rms_error": comparison.rms_error,
                    "cpu_rms_error": comparison.cpu_rms_error,
                    "n_elements": comparison.n_elements,
                },
            )


def _worst(comparison: Comparison, thresholds: Thresholds) -> CoarsePart | None:
    """The coarsest part; of ops that may round more than once all over only one that differs from the others."""
    parts = comparison.parts
    if comparison.rounding == "mostly once":
        if comparison.typical_part > thresholds.typical_rounding:
            return None
        parts = tuple(part for part in parts if part.kind != "whole")
    if comparison.rounding == "once":  # the whole is NUM213's own
        parts = tuple(part for part in parts if part.kind != "whole")
    return max(parts, key=lambda part: part.ratio, default=None)


def _is_told(comparison: Comparison, thresholds: Thresholds) -> bool:
    """Whether single elements are beyond their allowance, or the whole is coarser than it may be."""
    coarse = comparison.rounded_once and comparison.n_elements >= LEAST_ELEMENTS and comparison.cpu_rms_error > 0
    if coarse and comparison.rms_error > thresholds.coarser_rms * comparison.cpu_rms_error:
        return True
    wrong_mask = comparison.n_nan_mismatch + comparison.n_inf_mismatch > 0
    return wrong_mask or comparison.worst_ratio > allowed_ratio(comparison, thresholds)


def _where(part: CoarsePart, case: Case, comparison: Comparison) -> str:
    if part.kind == "whole":
        return "all over"
    if part.kind == "tile":
        *outer, row, column = part.place
        return f"in the tile of 16 x 16 that begins at {place((*outer, 16 * row, 16 * column))}"
    if part.kind == "run":
        return f"in elements {64 * part.place[0]} to {64 * part.place[0] + 63}"
    sizes = comparison.expected.sizes if comparison.expected is not None else ()
    if part.kind == "row" or part.dim >= len(sizes):
        return f"in the row at {place(part.place)}"
    return f"in {dimensions(case, comparison.name, len(sizes))[part.dim].one} {part.place[0]}"
