"""The call that a node of an execution trace stands for, bound to the op of the torch that is here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from audit.importers.execution_node import Node, NotACase, arguments_of
from audit.replay.overload import resolve
from audit.schema import Arg, Named, TensorSpec
from audit.tracer.composites import COMPOSITES, is_composite

_TRITON = "Triton kernel: its code is not in the trace"
#: Names of generated kernels list what is fused into them.
_MAX_NAME = 200
#: Composites that choose by device only from fp16 to fp32 (``audit.tracer.composites`` takes no other calls of them).
_FROM_HALF = frozenset(("aten::softmax.int", "aten::log_softmax.int"))


@dataclass(frozen=True)
class Call:
    """The arguments of a call of ``op``, or the ``reason`` why it is no case. ``whole``: its parts are none, either."""

    op: str
    args: tuple[Arg, ...] = ()
    kwargs: tuple[tuple[str, Arg], ...] = ()
    accelerator: bool = False
    reason: str = ""
    whole: bool = False


@dataclass(frozen=True)
class _Parameter:
    name: str
    kind: str
    by_name: bool
    default: Any


def call_of(node: Node) -> Call | None:
    """None for what is no call (annotations, autograd's own nodes), and for composites, whose parts are recorded."""
    if node.triton:
        return Call(node.name[:_MAX_NAME], reason=_TRITON)
    if not node.op:
        return None
    if not node.op.startswith("aten::"):
        return Call(node.op)  # custom ops: the ops that they call are cases
    composite = _is_composite(node.op)
    if composite and node.op.removeprefix("aten::").removesuffix(".default") not in COMPOSITES:
        return None
    try:
        recorded = _parameters(node.schema)
        found, accelerator = arguments_of(node, [parameter.kind for parameter in recorded])
        if composite and node.op in _FROM_HALF and not _is_from_half(found):
            return None
        args, kwargs = _bound(node.op, recorded, found)
    except NotACase as error:
        return Call(node.op, reason=str(error), whole=True)
    return Call(node.op, args, kwargs, accelerator, whole=True)


def _is_from_half(arguments: Sequence[Arg]) -> bool:
    tensor = arguments[0] if arguments else None
    return isinstance(tensor, TensorSpec) and tensor.dtype == "float16" and Named("dtype", "float32") in arguments


@lru_cache(maxsize=4096)
def _is_composite(op: str) -> bool:
    try:
        return is_composite(resolve(op))
    except AttributeError:
        return False


@lru_cache(maxsize=4096)
def _parameters(schema: str) -> tuple[_Parameter, ...]:
    """The parameters of a schema's text, by torch's own parser. Raises NotACase."""
    try:
        parsed = torch._C.parse_schema(schema)
    except RuntimeError as error:
        raise NotACase("its recorded schema is none that torch reads") from error
    return _of(parsed)


def _of(schema: Any) -> tuple[_Parameter, ...]:
    return tuple(
        _Parameter(
            argument.name,
            str(argument.real_type),
            argument.kwarg_only,
            argument.default_value if argument.has_default_value() else ...,
        )
        for argument in schema.arguments
    )


@lru_cache(maxsize=4096)
def _parameters_here(op: str) -> tuple[_Parameter, ...] | None:
    """The parameters of the op in this torch; None where it has none of that name."""
    try:
        return _of(resolve(op)._schema)
    except AttributeError:
        return None


def _bound(
    op: str, recorded: Sequence[_Parameter], values: Sequence[Arg]
) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
    """Arguments by place and by name as this torch takes them, without defaults, as the dispatcher leaves them out.

    Raises NotACase where this torch does not have an argument that was given.
    """
    here = _parameters_here(op) or recorded
    given = {parameter.name: value for parameter, value in zip(recorded, values, strict=True)}
    known = {parameter.name for parameter in here}
    for parameter in recorded:
        if parameter.name not in known and not _is_default(parameter, given[parameter.name]):
            raise NotACase(f"the op has no argument {parameter.name} in this torch")
    places = [parameter for parameter in here if not parameter.by_name]
    while places and (places[-1].name not in given or _is_default(places[-1], given[places[-1].name])):
        places.pop()
    args = tuple(_argument(parameter, given) for parameter in places)
    return args, tuple(
        (parameter.name, given[parameter.name])
        for parameter in here
        if parameter.by_name and parameter.name in given and not _is_default(parameter, given[parameter.name])
    )


def _argument(parameter: _Parameter, given: Mapping[str, Arg]) -> Arg:
    if parameter.name in given:
        return given[parameter.name]
    raise NotACase(f"its argument {parameter.name} was not recorded")


def _is_default(parameter: _Parameter, value: Arg) -> bool:
    default = tuple(parameter.default) if isinstance(parameter.default, list) else parameter.default
    return type(default) is type(value) and bool(default == value)
