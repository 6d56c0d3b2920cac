"""Whether a documented mechanism explains the errors of an output: the reference is computed again as it would have it.

Only for what is off, so that a case that is right costs nothing. All mechanisms that concern a case are tried, however
long that takes: a limit by the clock would make the verdict depend on what else the machine does.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping

import torch

from audit.codec import tensors_of
from audit.comparison import Comparison, Explanation
from audit.replay import widen
from audit.replay.anatomy import is_off, wrong_elements
from audit.replay.compare import BLOCK, Expected, flat, noise_of
from audit.replay.cpu_runs import REPEAT_LIMIT_BYTES, Contents, CpuRuns, n_bytes, operator
from audit.replay.dequantised import formula_of
from audit.replay.inner_products import ChangedProducts
from audit.replay.inputs import torch_dtype
from audit.replay.mechanisms import MECHANISMS, Change, Mechanism, is_factor
from audit.replay.operands import Operand
from audit.replay.overload import operand_names
from audit.replay.prepared import Prepared
from audit.schema import Case, TensorSpec

#: An output that is rounded once and further from the reference than this many times the CPU's rms is looked into too.
_COARSE = 1.25

#: From operands in fp64 to outputs by name; none where that fails.
WideRun = Callable[[Operand], Mapping[str, torch.Tensor]]


def deserves_explanation(result: Comparison) -> bool:
    """Whether its numbers were compared one by one and are worse than rounding makes them."""
    if result.standard != "numeric" or not result.reference or result.n_compared is not None:
        return False
    coarse = result.rounded_once and result.cpu_rms_error > 0 and result.rms_error > _COARSE * result.cpu_rms_error
    return is_off(result) or coarse


def with_explanations(
    prepared: Prepared,
    contents: Contents,
    comparisons: Iterable[Comparison],
    actual: Callable[[str], torch.Tensor],
    runs: CpuRuns,
) -> list[Comparison]:
    """``explained`` by runs of the case on the CPU; where it costs little."""
    case = prepared.case
    if n_bytes(contents) > REPEAT_LIMIT_BYTES:
        return list(comparisons)
    wide, op = widen.widened(case), lambda: formula_of(case) or operator(case.op)

    def run(operand: Operand) -> Mapping[str, torch.Tensor]:
        return runs.outputs(wide, op, contents, prepared.mutated, operand)

    return explained(case, comparisons, prepared.expected, actual, lambda: widen.operands(case, contents, None), run)


def explained(
    case: Case,
    comparisons: Iterable[Comparison],
    expected: Mapping[str, Expected],
    actual: Callable[[str], torch.Tensor],
    fresh: Callable[[], Operand],
    run: WideRun,
) -> list[Comparison]:
    """The comparisons, those of outputs that are off with how far each mechanism that concerns the case explains them.

    ``actual`` gives the device's elements of an output, flat; ``fresh`` its operands in fp64; ``run`` computes.
    """
    found = list(comparisons)
    known = {name for name, item in expected.items() if _reference(item) is not None}
    wanted = [result for result in found if deserves_explanation(result) and result.name in known]
    if not wanted:
        return found
    explanations: dict[str, list[Explanation]] = {result.name: [] for result in wanted}
    for mechanism in concerned(case):
        instead = _outputs(case, mechanism, expected, fresh, run)
        for result in wanted:
            if result.name in instead:
                measured = _measured(mechanism, result, expected[result.name], actual(result.name), instead)
                explanations[result.name].append(measured)
    return [
        dataclasses.replace(result, explanations=best_of_each(explanations.get(result.name, []))) for result in found
    ]


def concerned(case: Case) -> list[Mechanism]:
    """The mechanisms that could act on the case, by its op and dtypes."""
    dtypes = [spec.dtype for spec in tensors_of(case.args, case.kwargs, case.grads)]
    return [mechanism for mechanism in MECHANISMS if mechanism.concerns(case, dtypes)]


def best_of_each(found: list[Explanation]) -> tuple[Explanation, ...]:
    """Of each name the variant that leaves least."""
    best: dict[str, Explanation] = {}
    for explanation in found:
        known = best.get(explanation.mechanism)
        if known is None or explanation.left_fraction < known.left_fraction:
            best[explanation.mechanism] = explanation
    return tuple(best.values())


def _outputs(
    case: Case, mechanism: Mechanism, expected: Mapping[str, Expected], fresh: Callable[[], Operand], run: WideRun
) -> dict[str, torch.Tensor]:
    """What the mechanism would give, flat and in fp64, by output."""
    operand = mechanism.operand
    if operand is None:
        instead = {name: _reference(item) for name, item in expected.items()}
    elif mechanism.keeps is not None:
        with ChangedProducts(lambda factor: operand(factor, mechanism.dtypes[0]), mechanism.keeps):
            instead = {name: flat(tensor) for name, tensor in run(fresh()).items()}
    else:
        instead = {name: flat(tensor) for name, tensor in run(_changed(case, fresh(), operand)).items()}
    change = mechanism.result
    return {
        name: tensor if change is None else change(tensor.to(torch.float64), torch_dtype(expected[name].fact.dtype))
        for name, tensor in instead.items()
        if tensor is not None and name in expected and not tensor.is_complex()
    }


def _reference(expected: Expected) -> torch.Tensor | None:
    return expected.wide if expected.wide is not None else expected.same


def _changed(case: Case, wide: Operand, change: Change) -> Operand:
    """Operands with the change made once to each storage of a factor, whole, since operands may share one."""
    done: set[int] = set()
    names = operand_names(case)

    def operand(position: int, spec: TensorSpec) -> torch.Tensor:
        tensor = wide(position, spec)
        is_changed = tensor.dtype == torch.float64 and is_factor(case.op, names[position])
        if is_changed and spec.storage not in done:
            done.add(spec.storage)
            whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
            whole.copy_(change(whole, torch_dtype(spec.dtype)))
        return tensor

    return operand


def _measured(
    mechanism: Mechanism,
    result: Comparison,
    expected: Expected,
    actual: torch.Tensor,
    outputs: Mapping[str, torch.Tensor],
) -> Explanation:
    """Squares are summed over the elements that are wrong against either, and over all for where none is."""
    instead, reference = outputs[result.name], _reference(expected)
    n_wrong, n_left = 0, 0
    sums = torch.zeros(3, dtype=torch.float64)
    all_sums = torch.zeros(3, dtype=torch.float64)
    if reference is None or instead.numel() != actual.numel():
        return Explanation(mechanism.name, 0, 0, math.inf, 0.0)
    for start in range(0, actual.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        same = None if expected.same is None else expected.same[part]
        noise = noise_of(expected, part)
        wrong = wrong_elements(actual[part], reference[part], same, noise, result.eps)
        left = wrong_elements(actual[part], instead[part], None, noise, result.eps)
        n_wrong, n_left = n_wrong + int(wrong.sum()), n_left + int(left.sum())
        values, ours, theirs = (t[part].to(torch.float64) for t in (actual, reference, instead))
        squares = torch.stack([(values - ours).square(), (values - theirs).square(), (theirs - ours).square()])
        squares = torch.where(torch.isfinite(squares).all(0), squares, 0.0)
        all_sums += squares.sum(1)
        sums += torch.where(wrong | left, squares, 0.0).sum(1)
    error, left_error, size = (sums if n_wrong else all_sums).sqrt().tolist()
    if not error:
        return Explanation(mechanism.name, n_wrong, n_left, math.inf, 0.0)
    return Explanation(mechanism.name, n_wrong, n_left, left_error / error, size / error)
