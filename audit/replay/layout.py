"""Where an output lies: in memory of its own or in that of an operand, and what of it the op promises.

A view that is none loses what is written later; a copy that is a view writes to what it was copied from. The strides of
views, of copies and factories that take a memory format, and of elementwise ops are the same on every device.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import torch
from torch._prims_common import compute_elementwise_output_strides

from audit.comparison import Layout, TensorFact
from audit.replay.overload import operand_names
from audit.schema import Case

#: Where a tensor's storage begins in memory, and where its first element lies.
Address = Callable[[torch.Tensor], tuple[int, int]]

#: Arguments, or sets of them, by which a call asks for strides, or leaves them to a documented rule. A ``stride``
#: without a ``size`` is that of a window: a library lays a convolution out as it likes.
_ASKING = ({"memory_format"}, {"physical_layout"}, {"size", "stride"})
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def with_alias(
    fact: TensorFact, tensor: torch.Tensor, case: Case, operands: Sequence[torch.Tensor], address: Address
) -> TensorFact:
    """``fact`` of an output, with the first operand whose memory it lies in, if any."""
    if 0 in fact.sizes:
        return fact
    storage, first = address(tensor)
    for name, operand in zip(operand_names(case), operands, strict=False):
        where = address(operand)
        if storage and where[0] == storage:
            return dataclasses.replace(fact, alias=name, alias_bytes=first - where[1])
    return fact


def promised_layout(
    case: Case, op: torch._ops.OpOverload, operands: Sequence[torch.Tensor], tensor: torch.Tensor
) -> Layout:
    """What is promised of an output, of which ``tensor`` is the CPU's."""
    lazy = any(t.is_conj() or t.is_neg() or t._is_zerotensor() for t in (tensor, *operands))
    if case.grads is not None or lazy or not tensor.numel():
        return ""
    if any(r.alias_info is not None and not r.alias_info.is_write for r in op._schema.returns):
        return "view"
    if op.has_kernel_for_dispatch_key(_COMPOSITE):
        return ""
    names = {argument.name for argument in op._schema.arguments}
    if any(asking <= names for asking in _ASKING):
        return "strides"
    is_elementwise = torch.Tag.pointwise in op.tags and tensor.dim() > 1
    return "strides" if is_elementwise and tensor.stride() == _elementwise(operands, tensor) else "own"


def _elementwise(operands: Sequence[torch.Tensor], tensor: torch.Tensor) -> tuple[int, ...] | None:
    """By the rule of TensorIterator; None where the operands do not fit it."""
    try:
        expanded = [operand.expand(tensor.shape) for operand in operands if operand.dim()]
        return compute_elementwise_output_strides(*expanded) if expanded else None
    except RuntimeError:
        return None
