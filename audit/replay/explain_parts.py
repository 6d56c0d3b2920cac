"""Whether a documented mechanism explains the errors of an output that was compared in parts: the same parts again, of
operands as the mechanism would have them.

Only for what is off. The random numbers are those of the first time, so rows, columns and weights are the same.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import torch

from audit.comparison import Comparison, Explanation, Sketch
from audit.replay.anatomy import PLACED_ABOVE, is_off
from audit.replay.compare import BLOCK, Expected, compare
from audit.replay.cpu_runs import Contents
from audit.replay.explain import best_of_each, concerned
from audit.replay.inputs import elements_of, storages_of, torch_dtype
from audit.replay.mechanisms import Change, is_factor
from audit.replay.overload import operand_names
from audit.replay.sampled.blocks import read_together
from audit.schema import Case

#: A sketch whose errors have more than so many times the variance of rounding, all over, is looked into too.
_COARSE_VARIANCE = 2.0
#: Ratio counts are by powers of two.
_WRONG = int(math.log2(PLACED_ABOVE))

#: From the bytes of a case's storages to what is expected of its outputs; None where it is not compared in parts.
Again = Callable[[Contents], Mapping[str, Expected] | None]


def explained_in_parts(
    case: Case,
    comparisons: Iterable[Comparison],
    contents: Contents,
    actual: Callable[[str], torch.Tensor],
    again: Again,
) -> list[Comparison]:
    """The comparisons, those in parts that are off with how far each mechanism that concerns the case explains them.

    ``actual`` gives the device's elements of an output, flat. Mechanisms that change results are not tried.
    """
    found = list(comparisons)
    wanted = [result for result in found if _deserves_explanation(result)]
    explanations: dict[str, list[Explanation]] = {result.name: [] for result in wanted}
    for mechanism in concerned(case) if wanted else ():
        if mechanism.operand is None or mechanism.result is not None or mechanism.keeps is not None:
            continue
        instead = again(_changed(case, contents, mechanism.operand)) or {}
        elements = {name: actual(name) for name in explanations if name in instead}
        read_together({name: instead[name] for name in elements}, elements)
        for result in wanted:
            if result.name in elements:
                after = compare(instead[result.name], elements[result.name], result.actual)
                explanations[result.name].append(_measured(mechanism.name, result, after))
    return [
        dataclasses.replace(result, explanations=best_of_each(explanations[result.name]))
        if result.name in explanations
        else result
        for result in found
    ]


def _deserves_explanation(result: Comparison) -> bool:
    in_parts = result.standard == "numeric" and result.n_compared is not None
    return in_parts and (is_off(result) or (result.sketch is not None and _is_coarse(result.sketch)))


def _is_coarse(sketch: Sketch) -> bool:
    return any(scale.name == "whole" and scale.excess > _COARSE_VARIANCE * scale.n_summed for scale in sketch.scales)


def _changed(case: Case, contents: Contents, change: Change) -> Contents:
    """The storages, those of factors copied and changed, whole and block by block. Operands may share one."""
    names, changed = operand_names(case), dict(contents)
    for storage in storages_of(case):
        spec = next((spec for position, spec in storage.members if is_factor(case.op, names[position])), None)
        dtype = torch.int8 if spec is None else torch_dtype(spec.dtype)
        if dtype.is_floating_point:
            changed[storage.name] = contents[storage.name].clone()
            line = elements_of(changed[storage.name], dtype)
            for start in range(0, line.numel(), BLOCK):
                part = line[start : start + BLOCK]
                part.copy_(change(part.to(torch.float64), dtype))
    return changed


def _measured(mechanism: str, before: Comparison, after: Comparison) -> Explanation:
    """Over all elements that were compared in both; what the mechanism changes is what it takes away of the squares."""
    if not before.rms_error or not math.isfinite(after.rms_error):
        return Explanation(mechanism, _n_wrong(before), _n_wrong(after), math.inf, 0.0, after.sketch)
    left = after.rms_error / before.rms_error
    size = math.sqrt(max(0.0, 1.0 - left**2))
    return Explanation(mechanism, _n_wrong(before), _n_wrong(after), left, size, after.sketch)


def _n_wrong(result: Comparison) -> int:
    counted = result.ratio_counts[_WRONG] if len(result.ratio_counts) > _WRONG else 0
    return counted + result.n_nan_mismatch + result.n_inf_mismatch
