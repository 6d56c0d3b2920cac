"""What the ops of a program's own copy between host and device, told from the calls that they make."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Literal, TypeAlias

from audit.codec import item_bytes
from audit.schema import Arg, Copy, Named, TensorSpec
from audit.tracer.record import Record
from audit.tracer.signature import call_to_args

_Direction: TypeAlias = Literal["DtoH", "HtoD"]


def host_copies(records: Iterable[Record]) -> dict[str, tuple[Copy, ...]]:
    """By the name of the op that made them: at most one of each direction, over all calls."""
    found: dict[str, dict[_Direction, Copy]] = {}
    for record in records:
        if not record.inside or not record.on_accelerator or (copied := _copied(record)) is None:
            continue
        direction, nbytes = copied
        for op, count in record.inside.items():
            by_direction = found.setdefault(op, {})
            seen = by_direction.get(direction, Copy(direction, 0, 0))
            by_direction[direction] = Copy(direction, seen.nbytes + nbytes * count, seen.count + count)
    return {op: tuple(by_direction.values()) for op, by_direction in found.items()}


def _copied(record: Record) -> tuple[_Direction, int] | None:
    """Direction and bytes of a call that copies between host and device; None of any other."""
    args, kwargs = call_to_args(record.folded)
    if record.op.startswith("aten::_to_copy."):
        source, to_host = args[0], dict(kwargs).get("device") == Named("device", "cpu")
    elif record.op.startswith("aten::copy_.") and len(args) > 1:
        source, to_host = args[1], _is_on_host(args[0])
    else:
        return None
    if not isinstance(source, TensorSpec) or to_host == source.host:
        return None
    return "DtoH" if to_host else "HtoD", prod(source.sizes) * item_bytes(source.dtype)


def _is_on_host(arg: Arg) -> bool:
    return isinstance(arg, TensorSpec) and arg.host
