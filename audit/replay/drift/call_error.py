"""How wrong one call is by itself: what a device gave for given inputs, against the CPU on the very same inputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch

from audit.comparison import Comparison
from audit.device.guarded import host_copy
from audit.device.steering import steered
from audit.replay.compare import Expected, compare, error_between, fact_of, flat
from audit.replay.drift.sides import arguments, run_once
from audit.replay.execute import Produced, mutated_name
from audit.replay.expectation import change, expected_of
from audit.replay.inputs import Bound
from audit.replay.on_cpu import cpu_op
from audit.replay.outcomes import attempt
from audit.replay.overload import operand_names, resolve, written_operands
from audit.replay.standards import standard_of
from audit.replay.stream import Stream
from audit.replay.ties import tie_of
from audit.replay.undetermined import undetermined
from audit.replay.widen import move, wide_dtype, widened
from audit.schema import Outcome
from audit.tape import TapeCall

_CPU = torch.device("cpu")
#: Below this ratio nobody asks what a movement of the inputs by one rounding step would have done.
_UNSUSPICIOUS = 4.0

Outputs: TypeAlias = "dict[str, torch.Tensor]"


@dataclass(frozen=True)
class CallError:
    """``ratio`` and ``wrong`` as in ``DriftStep``; ``error`` is relative; ``worst`` says where, in words."""

    ratio: float | None = None
    wrong: int = 0
    error: float | None = None
    worst: str = ""


def outputs_of(call: TapeCall, produced: Sequence[Produced], operands: Sequence[torch.Tensor]) -> Outputs:
    """What a call gave by name, and what it wrote, in place of outputs that are the very same tensor."""
    if call.backward_of is not None:
        return {item.name: item.tensor for item in produced if item.tensor is not None}
    positions = written_operands(call.case)
    names = operand_names(call.case)
    written = [operands[position] for position in positions]
    kept = {
        item.name: item.tensor
        for item in produced
        if item.tensor is not None and not any(item.tensor is tensor for tensor in written)
    }
    return {**kept, **{mutated_name(names[position]): operands[position] for position in positions}}


class CallReference:
    """The CPU's answers to one call on ``inputs`` (plain CPU tensors): in the program's own dtypes and in fp64."""

    def __init__(self, call: TapeCall, inputs: Sequence[torch.Tensor]) -> None:
        self._call = call
        self._inputs = inputs
        self._same = self._run(inputs, wide=False)
        self._wide = self._run([_wide(tensor) for tensor in inputs], wide=True)
        self._moved: Outputs | None = None

    def _run(self, inputs: Sequence[torch.Tensor], wide: bool) -> Outputs:
        call = self._call
        case = widened(call.case) if wide else call.case

        def run() -> Outputs:
            op = resolve(case.op) if wide else cpu_op(call.case)
            operands = [host_copy(tensor) for tensor in inputs]
            with steered(call.case.settings):
                produced, _ = run_once(call, op, operands, _CPU, case)
            return outputs_of(call, produced, operands)

        found = attempt(run)
        return {} if isinstance(found, Outcome) else found

    @property
    def answered(self) -> bool:
        """Whether the CPU has this call at all."""
        return bool(self._same or self._wide)

    def error_of(self, outputs: Outputs) -> CallError:
        """The worst of the device's outputs, given as plain CPU tensors."""
        found = [self._compared(name, tensor) for name, tensor in outputs.items()]
        if any(c.standard == "numeric" and c.worst_ratio > _UNSUSPICIOUS for c in found) and self._moved is None:
            self._moved = self._run([self._moved_input(n, t) for n, t in enumerate(self._inputs)], wide=True)
            found = [self._compared(name, tensor) for name, tensor in outputs.items()]
        return _worst_of(found, self._relative(outputs))

    def _moved_input(self, position: int, tensor: torch.Tensor) -> torch.Tensor:
        wide = _wide(tensor)
        if wide.dtype != tensor.dtype or tensor.is_floating_point():
            wide = wide.contiguous().as_strided(tensor.shape, _dense(tensor.shape)).clone()
            move(wide, tensor.dtype, Stream(0, self._call.case.key, position, "move"))
        return wide

    def _compared(self, name: str, actual: torch.Tensor) -> Comparison:
        call, standard = self._call, standard_of(self._call.case)
        kind, why = standard.of_output(name)
        same, wide = self._same.get(name), self._wide.get(name)
        model = same if same is not None else wide
        if model is None or kind == "metadata" or standard.is_private(name) or model.shape != actual.shape:
            return Comparison(name, "metadata", None, None)
        floating = actual.is_floating_point() or actual.is_complex()
        if kind == "exact" or not floating:
            bound = Bound(*arguments(call.case, self._inputs, _CPU), list(self._inputs))
            free, _ = undetermined(call.case, bound, model)
            tie = tie_of(call.case, name, bound) if free is None else None
            expected = Expected(
                name, fact_of(actual), "exact", why, same=flat(model), tie=tie,
                free=None if free is None else free.reshape(-1),
            )  # fmt: skip
            return compare(expected, flat(actual), fact_of(actual))
        moved = [self._moved] if self._moved else []
        if same is None:
            expected = Expected(
                name, fact_of(actual), "numeric", why, None, flat(model), change(moved, name, flat(model))
            )
        else:
            expected = expected_of(name, same, self._wide, moved, standard, "output")
        return compare(replace(expected, fact=fact_of(actual)), flat(actual), fact_of(actual))

    def _relative(self, outputs: Outputs) -> float | None:
        total, scale = 0.0, 0.0
        for name, actual in outputs.items():
            wide = self._wide.get(name)
            if wide is None or wide.shape != actual.shape or not wide.is_floating_point():
                continue
            error = error_between(flat(actual), flat(wide))[1]
            total += error * error * wide.numel()
            scale += float(flat(wide).double().nan_to_num(0.0, 0.0, 0.0).square().sum())
        return math.sqrt(total / scale) if scale else None


def _dense(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(wide_dtype(tensor.dtype))


def _worst_of(found: Sequence[Comparison], error: float | None) -> CallError:
    numeric = [c for c in found if c.standard == "numeric"]
    wrong = sum(c.n_nan_mismatch + c.n_inf_mismatch + (c.n_different if c.standard == "exact" else 0) for c in found)
    judged = [c for c in found if c.standard != "metadata"]
    if not judged:
        return CallError(error=error)
    worst = max(judged, key=lambda c: (c.n_nan_mismatch + c.n_inf_mismatch + wrong_of(c), c.worst_ratio))
    where = ""
    if worst.worst_index or worst.worst_actual:
        place = ", ".join(map(str, worst.worst_index))
        where = f"{worst.name}[{place}]: got {worst.worst_actual}, expected {worst.worst_expected}"
    return CallError(max((c.worst_ratio for c in numeric), default=None), wrong, error, where)


def wrong_of(comparison: Comparison) -> int:
    return comparison.n_different if comparison.standard == "exact" else 0
