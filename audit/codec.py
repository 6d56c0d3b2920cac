"""Dataclasses of ``audit.schema`` to JSON and back, stable case keys, and signatures for people.

The decoder builds only the classes named here from plain JSON: a run file from a stranger can be wrong, never code.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias, TypeVar

from audit.errors import AuditError
from audit.schema import Arg, Named, Phase, TensorSpec

T = TypeVar("T")

#: Lists in lists in an argument. No op takes deeper ones than lists of lists of tensors.
_MAX_DEPTH = 8


class DecodeError(AuditError):
    """A file's content does not have the expected form."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(message, "malformed-record")


def _shown(value: Any) -> str:
    """What came instead, for a message: a stranger's value may be of any length and depth."""
    if isinstance(value, (list, dict)):
        return f"{'a list' if isinstance(value, list) else 'an object'} of {len(value)}"
    return repr(value[:80] if isinstance(value, str) else value)


# --- arguments: a tagged union, one letter per tag --------------------------------------------------------------


def arg_to_json(arg: Arg) -> Any:
    """JSON for one argument; floats that JSON cannot hold, complex and torch constants become tagged objects."""
    if arg is None or isinstance(arg, (bool, int, str)):
        return arg
    if isinstance(arg, float):
        return arg if math.isfinite(arg) else {"float": repr(arg)}
    if isinstance(arg, complex):
        return {"complex": [arg_to_json(arg.real), arg_to_json(arg.imag)]}
    if isinstance(arg, TensorSpec):
        return {"tensor": _spec_to_json(arg)}
    if isinstance(arg, Named):
        return {arg.kind: arg.name}
    return [arg_to_json(item) for item in arg]


def _spec_to_json(spec: TensorSpec) -> dict[str, Any]:
    return {
        f.name: list(value) if isinstance(value, tuple) else value
        for f in dataclasses.fields(spec)
        if (value := getattr(spec, f.name)) != f.default
    }


def arg_from_json(value: Any, depth: int = 0) -> Arg:
    """The inverse of ``arg_to_json``. Raises DecodeError on anything else."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return tuple(arg_from_json(item, depth + 1) for item in value)
    if isinstance(value, dict) and len(value) == 1:
        [(tag, content)] = value.items()
        if tag == "tensor":
            return decode(TensorSpec, content)
        if tag == "float" and content in ("inf", "-inf", "nan"):
            return float(content)
        if tag == "complex" and isinstance(content, list) and len(content) == 2:
            real, imag = (arg_from_json(part, _MAX_DEPTH) for part in content)
            if isinstance(real, (int, float)) and isinstance(imag, (int, float)):
                return complex(real, imag)
        if tag in ("dtype", "layout", "device", "memory_format", "generator") and isinstance(content, str):
            return Named(tag, content)
    raise DecodeError(f"expected an op argument, got {_shown(value)}")


def case_key(
    op: str,
    args: tuple[Arg, ...],
    kwargs: tuple[tuple[str, Arg], ...],
    phase: Phase,
    grads: tuple[TensorSpec | None, ...] | None,
    settings: tuple[tuple[str, bool | str], ...] = (),
) -> str:
    """A name for the case that is the same on every machine and torch version: ``addmm-`` and 12 hex digits."""
    identity = [
        op,
        [arg_to_json(arg) for arg in args],
        [[name, arg_to_json(arg)] for name, arg in kwargs],
        phase,
        None if grads is None else [arg_to_json(grad) for grad in grads],
        *([settings] if settings else []),
    ]
    digest = hashlib.sha256(json.dumps(identity, separators=(",", ":"), sort_keys=True).encode()).hexdigest()
    base = op.split("::")[-1].split(".")[0]
    safe = "".join(c if c.isalnum() or c == "_" else "_" for c in base)[:60]
    return f"{safe}-{digest[:12]}"


def tensors_of(
    args: tuple[Arg, ...], kwargs: tuple[tuple[str, Arg], ...], grads: tuple[TensorSpec | None, ...] | None = None
) -> list[TensorSpec]:
    """The tensors of a call in the order that ``Case.values`` numbers them."""
    found: list[TensorSpec] = []

    def walk(arg: Arg) -> None:
        if isinstance(arg, TensorSpec):
            found.append(arg)
        elif isinstance(arg, tuple):
            for item in arg:
                walk(item)

    for arg in args:
        walk(arg)
    for _, arg in kwargs:
        walk(arg)
    for grad in grads or ():
        walk(grad)
    return found


_SHORT_DTYPES = {
    "float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128",
}  # fmt: skip


def contiguous_strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements, as torch computes them (a size of 0 counts as 1)."""
    strides: list[int] = []
    step = 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def reach(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last that a tensor touches (0 where it is empty)."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def item_bytes(dtype: str) -> int:
    """Bytes of an element: by the bits in the name (``float8_e4m3fn``: 1), 1 of ``bool``, 0 of what is not known."""
    bits = re.search(r"\d+", dtype)
    if bits is None:
        return int(dtype == "bool")
    return {"8": 1, "16": 2, "32": 4, "64": 8, "128": 16}.get(bits[0], 0)


def signature_text(
    args: tuple[Arg, ...],
    kwargs: tuple[tuple[str, Arg], ...],
    grads: tuple[TensorSpec | None, ...] | None = None,
    settings: tuple[tuple[str, bool | str], ...] = (),
) -> str:
    """One line for people: ``bf16[8, 16], bf16[16, 4] strides (1, 16), alpha=1``."""
    parts = [_arg_text(arg) for arg in args] + [f"{name}={_arg_text(arg)}" for name, arg in kwargs]
    if grads is not None:
        parts.append(f"with backward({', '.join(_arg_text(grad) for grad in grads)})")
    parts += [f"under {name.removeprefix('torch.backends.')} {value}" for name, value in settings]
    return ", ".join(parts)


def _arg_text(arg: Arg) -> str:
    if isinstance(arg, TensorSpec):
        text = f"{_SHORT_DTYPES.get(arg.dtype, arg.dtype)}[{', '.join(map(str, arg.sizes))}]"
        if arg.strides != contiguous_strides(arg.sizes) and 0 not in arg.sizes:
            text += f" strides ({', '.join(map(str, arg.strides))})"
        if arg.offset:
            text += f" offset {arg.offset}"
        return text
    if isinstance(arg, Named):
        return arg.name
    if isinstance(arg, tuple):
        return f"[{', '.join(_arg_text(item) for item in arg)}]"
    return repr(arg)


# --- dataclass <-> JSON ----------------------------------------------------------------------------------------


def encode(value: Any) -> Any:
    """JSON for a schema dataclass; fields at their default are left out, non-finite floats become strings."""
    if isinstance(value, (TensorSpec, Named)):
        return arg_to_json(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: [arg_to_json(item) for item in item_value]
            if (cls := type(value).__name__) == "Case" and f.name == "args"
            else [[name, arg_to_json(item)] for name, item in item_value]
            if cls == "Case" and f.name == "kwargs"
            else encode(item_value)
            for f in dataclasses.fields(value)
            if not _is_default(f, item_value := getattr(value, f.name))
        }
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(encode(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value


def _is_default(f: dataclasses.Field[Any], value: Any) -> bool:
    if f.name == "format_version":
        return False  # the version must stand in the file even while it is the default
    if f.default is not dataclasses.MISSING:
        return bool(value == f.default) and type(value) is type(f.default)
    if f.default_factory is not dataclasses.MISSING:
        return bool(value == f.default_factory())
    return False


def decode(cls: type[T], value: Any) -> T:
    """Builds ``cls`` from JSON. Unknown fields are ignored (a newer writer), missing ones and wrong types raise."""
    if not isinstance(value, dict):
        raise DecodeError(f"expected an object for {cls.__name__}, got {type(value).__name__}")
    arguments: dict[str, Any] = {}
    for name, decoder, is_required in _field_decoders(cls):  # type: ignore[arg-type]  # a class is hashable; mypy sees type[T]
        if name in value:
            try:
                arguments[name] = decoder(value[name])
            except DecodeError:
                raise
            except (TypeError, ValueError, RecursionError) as error:
                raise DecodeError(f"{cls.__name__}.{name}: {error}") from error
        elif is_required:
            raise DecodeError(f"{cls.__name__} lacks the field {name!r}")
    return cls(**arguments)


_Decoder: TypeAlias = Callable[[Any], Any]


@cache
def _field_decoders(cls: type) -> tuple[tuple[str, _Decoder, bool], ...]:
    """(name, what builds it from JSON, whether it must be there) of each field. Made once: a run has thousands."""
    hints = typing.get_type_hints(cls)
    own: dict[str, _Decoder] = {"args": _args, "kwargs": _kwargs} if cls.__name__ == "Case" else {}
    missing = dataclasses.MISSING
    return tuple(
        (f.name, own.get(f.name) or _decoder(hints[f.name]), f.default is missing and f.default_factory is missing)
        for f in dataclasses.fields(cls)
    )


def _args(value: Any) -> tuple[Arg, ...]:
    return tuple(arg_from_json(item) for item in _as_list(value))


def _kwargs(value: Any) -> tuple[tuple[str, Arg], ...]:
    return tuple(_decode_kwarg(item) for item in _as_list(value))


def _decode_kwarg(item: Any) -> tuple[str, Arg]:
    if not (isinstance(item, list) and len(item) == 2 and isinstance(item[0], str)):
        raise DecodeError(f"expected [name, argument], got {_shown(item)}")
    return item[0], arg_from_json(item[1])


def _as_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise DecodeError(f"expected a list, got {type(value).__name__}")
    return value


def _as_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DecodeError(f"expected an object, got {type(value).__name__}")
    return value


def _decoder(hint: Any) -> _Decoder:
    """What builds a value of the type ``hint`` from JSON, or raises DecodeError."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _union(inner)
    if origin is typing.Literal:
        return _literal(inner)
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        each = _decoder(inner[0])
        return lambda value: tuple([each(item) for item in _as_list(value)])
    if origin is tuple:
        return _fixed(tuple(_decoder(part) for part in inner))
    if origin is frozenset:
        each = _decoder(inner[0])
        return lambda value: frozenset([each(item) for item in _as_list(value)])
    if origin in (dict, Mapping):
        return _mapping(inner[0], _decoder(inner[1]))
    if hint is TensorSpec:
        return _tensor_spec
    if dataclasses.is_dataclass(hint):
        return lambda value: decode(hint, value)  # type: ignore[arg-type]  # is_dataclass admits instances, hints are types
    return _plain(hint)


def _literal(allowed: tuple[Any, ...]) -> _Decoder:
    def build(value: Any) -> Any:
        if value not in allowed:
            raise DecodeError(f"expected one of {', '.join(map(str, allowed))}, got {_shown(value)}")
        return value

    return build


def _fixed(parts: tuple[_Decoder, ...]) -> _Decoder:
    def build(value: Any) -> tuple[Any, ...]:
        items = _as_list(value)
        if len(items) != len(parts):
            raise DecodeError(f"expected {len(parts)} items, got {len(items)}")
        return tuple([part(item) for part, item in zip(parts, items, strict=True)])

    return build


def _mapping(key: Any, each: _Decoder) -> _Decoder:
    if key is int:
        return lambda value: {_position(name): each(item) for name, item in _as_object(value).items()}
    return lambda value: {name: each(item) for name, item in _as_object(value).items()}


def _tensor_spec(value: Any) -> TensorSpec:
    is_tagged = isinstance(value, dict) and set(value) == {"tensor"}
    return decode(TensorSpec, value["tensor"] if is_tagged else value)


def _position(key: str) -> int:
    """JSON has text keys alone; ``int`` itself would take blanks, underscores, and digits of every script."""
    if not (key.isascii() and key.isdigit() and len(key) < 10 and (key == "0" or key[0] != "0")):
        raise DecodeError(f"expected a position, got {key[:80]!r}")
    return int(key)


def _union(inner: tuple[Any, ...]) -> _Decoder:
    is_optional = types.NoneType in inner
    options = [part for part in inner if part is not types.NoneType]
    exact = frozenset(part for part in options if part in (bool, int, str))
    decoders = [_decoder(part) for part in options]

    def build(value: Any) -> Any:
        if value is None and is_optional:
            return None
        if type(value) in exact:
            return value
        error: DecodeError | None = None
        for each in decoders:
            try:
                return each(value)
            except DecodeError as caught:
                error = caught
        raise error or DecodeError(f"unexpected {_shown(value)}")

    return build


def _plain(hint: Any) -> _Decoder:
    if hint is float:
        return _float
    name = getattr(hint, "__name__", hint)

    def build(value: Any) -> Any:
        if type(value) is not hint:
            raise DecodeError(f"expected {name}, got {_shown(value)}")
        return value

    return build


def _float(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if value in ("inf", "-inf", "nan"):
        return float(value)
    raise DecodeError(f"expected float, got {_shown(value)}")
