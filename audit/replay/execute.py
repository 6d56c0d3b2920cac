"""Calls one op the way the program did: by its qualified name, under autograd or not, in its phase."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import torch

from audit.replay.inputs import Bound
from audit.schema import Case, Phase

T = TypeVar("T")


@dataclass(frozen=True)
class Produced:
    """One tensor that a call gave: an output, a gradient, or an argument it changed. None where it gave none."""

    name: str
    tensor: torch.Tensor | None


@lru_cache(maxsize=4096)
def resolve(name: str) -> torch._ops.OpOverload:
    """``aten::addmm.default`` to the op. Raises AttributeError for an op that this process does not know or not run.

    A trace may come from a stranger: only what the tracer records is run, and nothing that opens files.
    """
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.rpartition(".") if "." in rest else (rest, "", "default")
    packet = getattr(getattr(torch.ops, namespace), base, None)
    found = getattr(packet, overload or "default", None)
    if not isinstance(found, torch._ops.OpOverload):
        raise AttributeError(
            f"torch {torch.__version__} has no operator {name}; is the library that defines it imported?"
        )
    if not torch._C._dispatch_has_kernel(found.name()) or name.startswith("aten::from_file"):
        raise AttributeError(f"{name} is no operator of the dispatcher, or opens files: it is not replayed")
    return found


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


def operand_names(case: Case) -> list[str]:
    """A name for each operand by position, from the schema: ``mat1``, ``tensors[2]``."""
    try:
        parameters = [argument.name for argument in resolve(case.op)._schema.arguments]
    except AttributeError:
        parameters = []
    names: list[str] = []

    def walk(arg: Any, name: str) -> None:
        if isinstance(arg, tuple):
            for index, item in enumerate(arg):
                walk(item, f"{name}[{index}]")
        elif type(arg).__name__ == "TensorSpec":
            names.append(name)

    for index, arg in enumerate(case.args):
        walk(arg, parameters[index] if index < len(parameters) else f"argument {index}")
    for name, arg in case.kwargs:
        walk(arg, name)
    for index, grad in enumerate(case.grads or ()):
        walk(grad, f"incoming gradient {index}")
    return names


def written_operands(case: Case) -> list[int]:
    """Positions of the operands that the schema says are written."""
    try:
        arguments = resolve(case.op)._schema.arguments
    except AttributeError:
        return []
    written = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
    return [position for position, name in enumerate(operand_names(case)) if name.split("[")[0] in written]


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
