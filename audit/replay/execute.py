"""Calls one op the way the program did: by its qualified name, under autograd or not, in its phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch

from audit.replay.inputs import Bound
from audit.replay.overload import operand_names, resolve
from audit.schema import Case, Phase

T = TypeVar("T")


@dataclass(frozen=True)
class Produced:
    """One tensor that a call gave: an output, a gradient, or an argument it changed. None where it gave none."""

    name: str
    tensor: torch.Tensor | None


def call(case: Case, op: Callable[..., Any], bound: Bound) -> list[Produced]:
    """Runs ``op`` once (forward and, for composites with gradients, backward) and flattens what it gives.

    Does not synchronise and does not enter the case's phase; see ``in_phase``.
    """
    if case.grads is None:
        with torch.no_grad():
            return flatten(op(*bound.args, **bound.kwargs), case.op)
    with torch.enable_grad():
        produced = flatten(op(*bound.args, **bound.kwargs), case.op)
        return produced + _gradients(produced, bound)


def _gradients(produced: list[Produced], bound: Bound) -> list[Produced]:
    outputs = [item.tensor for item in produced if item.tensor is not None]
    pairs = [(o, g) for o, g in zip(outputs, bound.grads, strict=False) if g is not None and o.requires_grad]
    leaves = [(position, t) for position, t in enumerate(bound.operands) if t.requires_grad]
    if not pairs or not leaves:
        return []
    gradients = torch.autograd.grad(
        [o for o, _ in pairs], [t for _, t in leaves], [g for _, g in pairs], allow_unused=True
    )
    return [
        Produced(f"gradient of operand {position}", gradient)
        for (position, _), gradient in zip(leaves, gradients, strict=True)
    ]


def flatten(result: Any, op_name: str) -> list[Produced]:
    """Outputs by name in the order of the schema; lists are numbered, Python numbers become 0-dim tensors."""
    names = _return_names(op_name)
    values = result if isinstance(result, tuple) and len(names) != 1 else (result,)
    produced: list[Produced] = []
    for index, value in enumerate(values):
        name = names[index] if index < len(names) else f"output {index}"
        if isinstance(value, (list, tuple)):
            produced += [Produced(f"{name}[{n}]", _as_tensor(item)) for n, item in enumerate(value)]
        else:
            produced.append(Produced(name, _as_tensor(value)))
    return produced


@lru_cache(maxsize=4096)
def _return_names(op_name: str) -> list[str]:
    try:
        returns = resolve(op_name)._schema.returns
    except AttributeError:
        return []
    if len(returns) == 1:
        return [returns[0].name or "output"]
    return [item.name or f"output {index}" for index, item in enumerate(returns)]


def _as_tensor(value: Any) -> torch.Tensor | None:
    if value is None or isinstance(value, torch.Tensor):
        return value
    if isinstance(value, (bool, int, float, complex)):
        dtype = torch.float64 if isinstance(value, float) else torch.complex128 if isinstance(value, complex) else None
        return torch.tensor(value, dtype=dtype)
    return None


# --- mutated arguments -----------------------------------------------------------------------------------------


def mutated_name(operand: str) -> str:
    """How a mutated argument is called among the outputs: ``running_mean (mutated)``."""
    return f"{operand} (mutated)"


def with_mutated(case: Case, bound: Bound, produced: list[Produced], positions: list[int]) -> list[Produced]:
    """Adds the operands at ``positions`` to the outputs, in place of outputs that are the very same tensor."""
    names = operand_names(case)
    mutated = [Produced(mutated_name(names[position]), bound.operands[position]) for position in positions]
    operands = [bound.operands[position] for position in positions]
    kept = [item for item in produced if not any(item.tensor is operand for operand in operands)]
    return kept + mutated


# --- phase -----------------------------------------------------------------------------------------------------


class _InBackward(torch.autograd.Function):
    """Runs a function while autograd's engine runs a backward node."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, function: Callable[[], Any]) -> torch.Tensor:
        ctx.function = function
        return anchor.clone()

    @staticmethod
    def backward(ctx: Any, *_: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.function()
        return torch.zeros(()), None


def in_phase(phase: Phase, case: Case, function: Callable[[], T]) -> T:
    """Runs ``function`` inside a real autograd backward if the case is a plain op of that phase.

    ROCm sets a thread-local flag there (ROCmBackwardPassGuard in torch/csrc/autograd/engine.cpp) by which GEMMs pick
    an implementation that keeps fp16 denormals. The graph is on the CPU, so the engine stays on this thread.
    """
    if phase != "backward" or case.grads is not None:
        return function()
    results: list[T] = []
    with torch.enable_grad():
        anchor = torch.zeros((), requires_grad=True)
        output = _InBackward.apply(anchor, lambda: results.append(function()))
        torch.autograd.backward(output)
    return results[0]
