"""The arguments of a call as a profiler writes them down: sizes, strides, type names, and numbers as text.

A grammar and never ``eval``. What a profiler leaves out stays out: values of tensors, strings, some lists' tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from audit.codec import contiguous_strides, reach
from audit.schema import NOT_RECORDED, UNKNOWN_DTYPE, Arg, TensorSpec

#: C++'s names of element types (c10/core/ScalarType.h, caffe2 TypeMeta), by torch's.
DTYPES: Mapping[str, str] = {
    "float": "float32", "double": "float64", "c10::Half": "float16", "c10::BFloat16": "bfloat16",
    "int": "int32", "long": "int64", "long int": "int64", "long long": "int64", "short": "int16", "short int": "int16",
    "char": "int8", "signed char": "int8", "unsigned char": "uint8", "unsigned int": "uint32", "bool": "bool",
    "unsigned short": "uint16", "short unsigned int": "uint16",
    "unsigned long": "uint64", "long unsigned int": "uint64", "c10::complex<c10::Half>": "complex32",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "c10::Float8_e4m3fn": "float8_e4m3fn", "c10::Float8_e4m3fnuz": "float8_e4m3fnuz",
    "c10::Float8_e5m2": "float8_e5m2", "c10::Float8_e5m2fnuz": "float8_e5m2fnuz",
    "c10::Float8_e8m0fnu": "float8_e8m0fnu", "c10::qint8": "qint8", "c10::quint8": "quint8",
}  # fmt: skip
_LISTS = ("TensorList", "OptionalTensorList", "GenericList")
_INTEGER = re.compile(r"[+-]?\d{1,19}")
_FLOAT = re.compile(r"[+-]?(\d{1,40}\.?\d{0,40}(e[+-]?\d{1,4})?|\.\d{1,40}|inf|nan)", re.IGNORECASE)
_INT64 = 1 << 63
_MAX_TEXT = 200
#: Fused optimizers take some thousand tensors.
_MAX_ITEMS = 100_000


def arguments_of(written: Mapping[str, Any]) -> tuple[Arg, ...]:
    """The arguments by position, from the profiler's four lists. Raises ValueError where these are no such lists."""
    types = _list(written.get("Input type", []))
    sizes, strides, texts = (
        _padded(_list(written.get(name, [])), len(types)) for name in ("Input Dims", "Input Strides", "Concrete Inputs")
    )
    storages = count()
    return tuple(_apart(_argument(*parts), storages) for parts in zip(types, sizes, strides, texts, strict=True))


def _apart(argument: Arg, storages: Iterator[int]) -> Arg:
    """Each tensor with a storage of its own: which of them share memory is not written down."""
    if isinstance(argument, TensorSpec):
        return replace(argument, storage=next(storages))
    return tuple(_apart(item, storages) for item in argument) if isinstance(argument, tuple) else argument


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list) or len(value) > _MAX_ITEMS:
        raise ValueError(f"expected a list of arguments, got {type(value).__name__}")
    return value


def _padded(values: list[Any], length: int) -> list[Any]:
    return (values + [None] * length)[:length]


def _argument(kind: Any, sizes: Any, strides: Any, text: Any) -> Arg:
    if not isinstance(kind, str):
        raise ValueError(f"expected the name of a type, got {type(kind).__name__}")
    if kind in _LISTS and isinstance(sizes, list) and sizes:
        rows = zip(sizes, _rows(strides, sizes), strict=True)
        return tuple(_tensor(UNKNOWN_DTYPE, shape, steps) for shape, steps in rows)
    if kind in DTYPES or (kind and isinstance(sizes, list) and sizes):
        return _tensor(DTYPES.get(kind, UNKNOWN_DTYPE), sizes if sizes is not None else [], strides)
    if isinstance(text, str) and text:
        return _number_or_text(text)
    return NOT_RECORDED if kind else None


def _rows(strides: Any, sizes: list[Any]) -> list[Any]:
    return strides if isinstance(strides, list) and len(strides) == len(sizes) else [None] * len(sizes)


def _tensor(dtype: str, sizes: Any, strides: Any) -> TensorSpec:
    """Contiguous where no strides that fit were written down."""
    shape = _counts(sizes)
    try:
        steps = _counts(strides)
    except ValueError:
        steps = contiguous_strides(shape)
    if len(steps) != len(shape):
        steps = contiguous_strides(shape)
    return TensorSpec(shape, steps, dtype, extent=reach(shape, steps))


def _counts(values: Any) -> tuple[int, ...]:
    if not isinstance(values, list) or not all(type(value) is int and 0 <= value < _INT64 for value in values):
        raise ValueError("expected a list of sizes")
    return tuple(values)


def _number_or_text(text: str) -> Arg:
    """``[1, -1]``, ``1e-06``, ``True``; anything else stays the text it is."""
    if text.startswith("[") and text.endswith("]") and len(text) < _MAX_ITEMS:
        inside = text[1:-1].strip()
        return tuple(_scalar(part.strip()) for part in inside.split(",")) if inside else ()
    return _scalar(text)


def _scalar(text: str) -> Arg:
    if text in ("True", "False"):
        return text == "True"
    if text == "None":
        return None
    if _INTEGER.fullmatch(text) and -_INT64 <= int(text) < _INT64:
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text[:_MAX_TEXT]
