"""What a case from a stranger's file may say: keys that are plain names, tensors that lie in some memory.

Keys become file names, offsets become places in memory, names become attributes of torch. The decoder has looked at
types alone.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

from audit.codec import DecodeError, reach, tensors_of
from audit.drift_records import DriftStep
from audit.schema import Arg, Case, Named, TensorSpec, Values

_INT64 = 1 << 63
#: complex128 has the largest element of all dtypes.
_MAX_ITEM_BYTES = 16
#: torch's kernels take 64 at most.
_MAX_DIMENSIONS = 128
_PLAIN = frozenset((str, bool, int, float, type(None)))
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,99}")
_OP = re.compile(r"[A-Za-z_]\w{0,63}::\w[\w.]{0,199}", re.ASCII)
_SETTING = re.compile(r"torch(\.[a-z_][a-z0-9_]{0,63}){1,8}")
_DTYPE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_NAMES: Mapping[Literal["layout", "device", "memory_format", "generator"], frozenset[str]] = {
    "layout": frozenset(
        ("strided", "jagged", "_mkldnn", *(f"sparse_{form}" for form in ("coo", "csr", "csc", "bsr", "bsc")))
    ),
    "device": frozenset(("device", "cpu")),
    "memory_format": frozenset(("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")),
    "generator": frozenset(("device", "cpu")),
}


def check_cases(cases: Iterable[Case]) -> None:
    """Raises DecodeError where a case is not one that a tracer could have written, or two have one key."""
    keys: set[str] = set()
    for case in cases:
        check_case(case)
        if case.key in keys:
            raise DecodeError(f"the key {case.key!r} is there twice")
        keys.add(case.key)


def check_amounts(record: Any) -> None:
    """Raises DecodeError where a count, a time or a length in a record or its parts is negative or endless."""
    if isinstance(record, (tuple, Mapping)):
        for item in record.values() if isinstance(record, Mapping) else record:
            if type(item) not in _PLAIN:  # most items by far
                check_amounts(item)
    elif dataclasses.is_dataclass(record):
        kind: type = type(record)
        for name, is_amount in _fields(kind):
            value = getattr(record, name)
            if type(value) not in _PLAIN:
                check_amounts(value)
            elif is_amount and isinstance(value, (int, float)) and not 0 <= value < math.inf:
                raise DecodeError(f"{kind.__name__}.{name} is {value}")


@cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """(name, whether it is an amount) of each field."""
    return tuple((field.name, _is_amount(field.name)) for field in dataclasses.fields(kind))


def _is_amount(name: str) -> bool:
    return (
        name.startswith("n_")
        or name.endswith(("_us", "_bytes", "_s"))
        or name in ("n", "us", "nbytes", "count", "median", "iqr")
    )


def check_case(case: Case) -> None:
    """Raises DecodeError where a name is no name, a number is out of range, or a tensor in no memory."""
    if not _KEY.fullmatch(case.key):
        raise DecodeError(f"the key {case.key[:80]!r} of a case is no plain name")
    if not _OP.fullmatch(case.op):
        raise DecodeError(f"case {case.key} calls {case.op[:80]!r}, which is no name of an op")
    if not 0 < case.n_calls < _INT64:
        raise DecodeError(f"case {case.key} has {case.n_calls} calls")
    if not 0 <= case.n_recomputed <= case.n_calls:
        raise DecodeError(f"case {case.key} has {case.n_recomputed} recomputed calls of {case.n_calls}")
    for name, value in case.settings:
        if not _SETTING.fullmatch(name) or not (isinstance(value, bool) or _DTYPE.fullmatch(value)):
            raise DecodeError(f"case {case.key} was called under the setting {name[:80]!r} of {str(value)[:80]!r}")
    for constant in _constants(case):
        known = _NAMES.get(constant.kind) if constant.kind != "dtype" else None
        if not (constant.name in known if known is not None else _DTYPE.fullmatch(constant.name)):
            raise DecodeError(f"case {case.key} has the {constant.kind} {constant.name[:80]!r}, which is none")
    specs = tensors_of(case.args, case.kwargs, case.grads)
    for spec in specs:
        _check_spec(case.key, spec)
    for position, values in case.values.items():
        if not 0 <= position < len(specs):
            raise DecodeError(f"case {case.key} has values for operand {position} of {len(specs)}")
        _check_values(case.key, position, values)


def check_step(step: DriftStep) -> None:
    """Raises DecodeError where a call of a played step is none: a name that is no name, an error below nought."""
    if not _KEY.fullmatch(step.key) or not _OP.fullmatch(step.op):
        raise DecodeError(f"call {step.index} is of {step.op[:80]!r} with the key {step.key[:80]!r}, which is no op")
    numbers = (step.error, step.noise, step.eps, step.ratio, step.alone_ratio, step.alone_error)
    counts = (step.wrong, step.n_different, step.alone_wrong or 0)
    if any(number is not None and not number >= 0 for number in numbers) or any(not 0 <= n < _INT64 for n in counts):
        raise DecodeError(f"call {step.index} has an error, a ratio or a count below nought")
    if any(not 0 <= index < step.index for index in step.before):
        raise DecodeError(f"call {step.index} takes what a later call gives")


def _constants(case: Case) -> Iterator[Named]:
    waiting: list[Arg] = [*case.args, *(arg for _, arg in case.kwargs)]
    while waiting:
        arg = waiting.pop()
        if isinstance(arg, Named):
            yield arg
        elif isinstance(arg, tuple):
            waiting.extend(arg)


def _check_spec(key: str, spec: TensorSpec) -> None:
    numbers = (*spec.sizes, *spec.strides, spec.offset, spec.extent, spec.storage)
    in_range = all(0 <= number < _INT64 for number in numbers)
    if not in_range or not len(spec.sizes) == len(spec.strides) <= _MAX_DIMENSIONS:
        raise DecodeError(
            f"case {key} has a tensor of sizes {_few(spec.sizes)}, strides {_few(spec.strides)}, "
            f"offset {spec.offset}, extent {spec.extent}"
        )
    n_elements = math.prod(spec.sizes)
    last = max(spec.offset + reach(spec.sizes, spec.strides), spec.extent, n_elements)
    if last * _MAX_ITEM_BYTES >= _INT64:
        raise DecodeError(f"case {key} has a tensor of {last} elements, more than any memory holds")
    if not _DTYPE.fullmatch(spec.dtype) or not _DTYPE.fullmatch(spec.layout):
        raise DecodeError(f"case {key} has a tensor of dtype {spec.dtype[:80]!r}, layout {spec.layout[:80]!r}")


def _few(numbers: tuple[int, ...]) -> str:
    return f"({', '.join(map(str, numbers[:8]))}{', ...' if len(numbers) > 8 else ''})"


def _check_values(key: str, position: int, values: Values) -> None:
    bounds = (values.minimum, values.maximum)
    fractions = (values.zero_fraction, values.subnormal_fraction)
    counts = (values.n_sampled, values.n_nan, values.n_posinf, values.n_neginf, values.n_structured)
    kinds = (values.n_distinct or 0, values.max_multiplicity or 0)
    if (
        not all(bound is None or math.isfinite(bound) for bound in bounds)
        or (values.minimum is not None and values.maximum is not None and values.minimum > values.maximum)
        or not all(0 <= fraction <= 1 for fraction in fractions)
        or not all(0 <= count < _INT64 for count in (*counts, *kinds))
        or (values.std is not None and not values.std >= 0)
    ):
        raise DecodeError(f"case {key} says of operand {position} what cannot be: {values}")
