"""A case's op in this torch, and the names that its schema gives to the arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from audit.schema import Arg, Case, TensorSpec


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
    if namespace != "aten" or base == "from_file" or not torch._C._dispatch_has_kernel(found.name()):
        raise AttributeError(f"{name} is no aten operator of the dispatcher, or opens files: it is not replayed")
    return found


def base_of(op: str) -> str:
    """``aten::index_put_.default`` to ``index_put``: no namespace, no overload, no underscore of the in-place form."""
    base = op.split("::")[-1].split(".")[0]
    return base if base.endswith("__") else base.removesuffix("_")


def named_arguments(op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by schema name, defaults filled in. Raises AttributeError where this torch does not know the op."""
    schema = resolve(op)._schema.arguments
    given = {a.name: a.default_value for a in schema if a.has_default_value()}
    given.update(zip((a.name for a in schema), args, strict=False))
    return {**given, **kwargs}


def arguments_of(case: Case) -> dict[str, Arg]:
    """The arguments of a case by name; those given by name alone where this torch does not know the op."""
    try:
        return named_arguments(case.op, case.args, dict(case.kwargs))
    except AttributeError:
        return dict(case.kwargs)


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
        elif isinstance(arg, TensorSpec):
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


def growing_operands(case: Case) -> list[int]:
    """Positions of the operands that the op may resize: what ``resize_`` and every ``out=`` form write."""
    base, _, overload = case.op.partition("::")[2].partition(".")
    resizes = base.startswith("resize_") or overload.endswith("out") or base.endswith("_out")
    return written_operands(case) if resizes else []
