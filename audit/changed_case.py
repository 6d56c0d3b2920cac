"""The case that an alternative runs: the same call under other settings of torch, or on inputs laid out otherwise.

Data only, without torch: the replay runs what the rules judge, so both must mean the same by a change.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Mapping
from math import prod

from audit.codec import contiguous_strides, item_bytes, reach, tensors_of
from audit.run_records import Change, Layout
from audit.schema import Arg, Case, Named, TensorSpec

#: An operand whose own copy would have more bytes (a mask that is expanded over batch and heads) stays as it is.
MAX_COPY_BYTES = 1 << 30
#: What ``dtype`` of a change replaces.
HALF_DTYPES = ("float16", "bfloat16")
#: Ops whose third argument asks for a result in single precision of an input in half precision.
_HALF_TO_FLOAT = ("aten::_softmax.default", "aten::_log_softmax.default")


def changed_case(case: Case, change: Change) -> Case:
    """The case under ``change``; equal to ``case`` where that changes nothing. Key and places of operands stay.

    What is laid out anew gets a storage of its own, except where the op writes into one that operands share.
    """
    settings = case.settings if change.settings is None else change.settings
    changed = dataclasses.replace(case, settings=settings)
    if change.layout is not None:
        changed = _laid_out(changed, change.layout)
    if change.dtype is not None:
        changed = _cast(changed, change.dtype)
    return changed


def _with_specs(case: Case, new: Mapping[int, TensorSpec], other: Callable[[Arg], Arg] = lambda arg: arg) -> Case:
    """The case with ``new`` specs by position, and ``other`` applied to every argument that is no tensor."""
    position = -1

    def build(arg: Arg) -> Arg:
        nonlocal position
        if isinstance(arg, TensorSpec):
            position += 1
            return new.get(position, arg)
        return tuple(build(item) for item in arg) if isinstance(arg, tuple) else other(arg)

    args = tuple(build(arg) for arg in case.args)
    kwargs = tuple((name, build(arg)) for name, arg in case.kwargs)
    grads = None if case.grads is None else tuple(build(grad) for grad in case.grads)
    return dataclasses.replace(case, args=args, kwargs=kwargs, grads=grads)  # type: ignore[arg-type]  # specs or None


# --- layout ----------------------------------------------------------------------------------------------------


def _laid_out(case: Case, layout: Layout) -> Case:
    specs = tensors_of(case.args, case.kwargs, case.grads)
    shared = _shared_storages(specs) if _writes(case.op) else frozenset()
    unused = 1 + max((spec.storage for spec in specs), default=0)
    new: dict[int, TensorSpec] = {}
    for position, spec in enumerate(specs):
        strides = _strides_of(spec, layout)
        if strides is not None and (spec.storage, spec.host) not in shared:
            new[position] = dataclasses.replace(
                spec, strides=strides, offset=0, extent=reach(spec.sizes, strides), storage=unused + position
            )
    return _with_specs(case, new)


def _strides_of(spec: TensorSpec, layout: Layout) -> tuple[int, ...] | None:
    """The strides that the layout gives; None where the operand has them, cannot have them or would grow too large."""
    if layout == "contiguous":
        strides = contiguous_strides(spec.sizes)
    elif len(spec.sizes) in (4, 5):
        strides = _channels_last(spec.sizes)
    else:
        return None
    same = all(a == b for size, a, b in zip(spec.sizes, spec.strides, strides, strict=True) if size > 1)
    if same or 0 in spec.sizes or prod(spec.sizes) * max(1, item_bytes(spec.dtype)) > MAX_COPY_BYTES:
        return None
    return strides


def _channels_last(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of (batch, channels, *space) with the channels innermost: ``(2, 3, 4, 5)`` -> ``(60, 1, 15, 3)``."""
    _, channels, *space = sizes
    inner = contiguous_strides((*space, channels))
    return (prod(sizes[1:]), 1, *inner[:-1])


def _writes(op: str) -> bool:
    """Whether the op changes an argument, by its name: ``add_``, ``.out``."""
    name, _, overload = op.partition("::")[2].partition(".")
    return name.endswith("_") or "out" in overload


def _shared_storages(specs: list[TensorSpec]) -> frozenset[tuple[int, bool]]:
    counts: defaultdict[tuple[int, bool], int] = defaultdict(int)
    for spec in specs:
        counts[spec.storage, spec.host] += 1
    return frozenset(storage for storage, count in counts.items() if count > 1)


# --- dtype -----------------------------------------------------------------------------------------------------


def _cast(case: Case, dtype: str) -> Case:
    """Half precision operands and dtype arguments become ``dtype``; a storage that dtypes share stays as it is."""
    specs = tensors_of(case.args, case.kwargs, case.grads)
    dtypes: defaultdict[tuple[int, bool], set[str]] = defaultdict(set)
    for spec in specs:
        dtypes[spec.storage, spec.host].add(spec.dtype)
    new = {
        position: dataclasses.replace(spec, dtype=dtype)
        for position, spec in enumerate(specs)
        if spec.dtype in HALF_DTYPES and len(dtypes[spec.storage, spec.host]) == 1
    }
    if not new:
        return case

    def other(arg: Arg) -> Arg:
        is_half = isinstance(arg, Named) and arg.kind == "dtype" and arg.name in HALF_DTYPES
        return Named("dtype", dtype) if is_half else arg

    changed = _with_specs(case, new, other)
    if case.op in _HALF_TO_FLOAT and changed.args[2:3] == (True,):
        changed = dataclasses.replace(changed, args=(*changed.args[:2], False, *changed.args[3:]))
    return changed
