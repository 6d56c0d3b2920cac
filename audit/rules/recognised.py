"""Whether the errors of an output have the shape that a known behaviour gives them. None: nothing was measured to tell.

Two kinds of shape. A mechanism (``audit.replay.mechanisms``) is recognised by computing the reference as it would have
it; ``sums-in-own-dtype``, where no order of summation is known, by how large and how even the errors are.
"""

from __future__ import annotations

import math

from audit.comparison import Comparison, Sketch
from audit.rules.thresholds import Thresholds
from audit.rules.whole_output import allowed_variance, standing_out
from audit.schema import Arg, Case, Measurement, TensorSpec
from audit.verdicts import Finding

#: A mechanism explains an error where at most this share of its rms is left, or of the wrong elements.
LEFT_FRACTION, LEFT_ELEMENTS = 0.25, 0.05
#: An error is no more than a mechanism's where that would make at least this share of it.
LEAST_SIZE = 0.5
#: Rounded partial sums: fewer terms are summed at once.
LEAST_DEPTH = 256
#: The largest error over the rms error of many roundings; that of 2^24 normal errors is 5.5, and rows differ in size.
MOST_UNEVEN = 16.0

#: Which argument is a product's left operand, whose last dimension is summed over.
_LEFT = {"mm": 0, "bmm": 0, "linear": 0, "matmul": 0, "addmm": 1, "baddbmm": 1, "_addmm_activation": 1}


def recognised(
    shape: str, finding: Finding, case: Case, measurement: Measurement | None, thresholds: Thresholds
) -> bool | None:
    """``shape`` as in ``known_behaviours.json``: a mechanism, ``at most`` one, or ``sums-in-own-dtype``."""
    output = finding.data.get("output")
    comparison = next((c for c in measurement.comparisons if c.name == output), None) if measurement else None
    if shape == "sums-in-own-dtype":
        return comparison is not None and _sums_in_own_dtype(comparison, case)
    if comparison is None or not comparison.explanations:
        return None
    name = shape.removeprefix("at most ")
    explanation = next((e for e in comparison.explanations if e.mechanism == name), None)
    if explanation is None:
        return False
    if finding.code == "NUM212":
        return _leaves_a_quiet_sketch(comparison.sketch, explanation.sketch, thresholds)
    if explanation.left_fraction <= LEFT_FRACTION:
        return True
    if explanation.n_wrong and explanation.n_left <= LEFT_ELEMENTS * explanation.n_wrong:
        return True
    return name != shape and explanation.size_fraction >= LEAST_SIZE


def _leaves_a_quiet_sketch(before: Sketch | None, after: Sketch | None, thresholds: Thresholds) -> bool:
    """No place stands out of what rounding leaves, or of the same share of the error all over as in single elements."""
    if before is None or after is None or not after.scales:
        return False
    all_over = max((scale.excess / scale.n_summed for scale in before.scales if scale.name == "whole"), default=0.0)
    allowed = max(allowed_variance(after, thresholds), LEFT_FRACTION**2 * all_over)
    return math.isfinite(allowed) and standing_out(after, allowed, thresholds)[0] is None


def _sums_in_own_dtype(comparison: Comparison, case: Case) -> bool:
    """Each of up to ``depth`` roundings of a partial sum is as large as that of the result, and they add up at random:
    the rms error is at most sqrt(depth) times that of one rounding, which the CPU's own is, and no element stands out.
    """
    depth, one = _depth(case), comparison.cpu_rms_error
    if depth < LEAST_DEPTH or not one > 0 or comparison.n_nan_mismatch or comparison.n_inf_mismatch:
        return False
    even = comparison.max_abs_error <= MOST_UNEVEN * comparison.rms_error
    return even and comparison.rms_error <= math.sqrt(depth) * one


def _depth(case: Case) -> int:
    """The number of products in an element, 0 where it is not known."""
    place = _LEFT.get(case.op.partition("::")[2].partition(".")[0])
    left: Arg = case.args[place] if place is not None and place < len(case.args) else None
    return left.sizes[-1] if isinstance(left, TensorSpec) and left.sizes else 0
