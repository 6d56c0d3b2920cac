"""One node of an execution trace: what torch's ``ExecutionTraceObserver`` wrote of a call, and its arguments.

Source: ``torch/csrc/profiler/standalone/execution_trace_observer.cpp``. Schema 1.0.1 has one flat object a node; from
1.0.2-chakra on the arguments stand in ``inputs`` and the rest in ``attrs``; from 1.1.0 on with strides.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from audit.codec import contiguous_strides, reach
from audit.importers.call_arguments import DTYPES
from audit.importers.enumerations import ENUMERATIONS, constant
from audit.schema import Arg, Named, TensorSpec
from audit.tracer.unaudited import META

_INT64 = 1 << 63
#: Lists are cut behind so many elements (kMaxNumElements).
_MAX_LIST = 4096
_MAX_DEPTH = 8
_SCHEMA = re.compile(r"(?P<op>\w+::\w+)(?:\.(?P<overload>\w+))?\(", re.ASCII)
#: Longest schema of torch 2.13 with default values: about 1,500 characters.
_MAX_SCHEMA = 1 << 14


class NodeError(ValueError):
    """An object in the list of nodes is none; the message says what it lacks."""


class NotACase(Exception):
    """The arguments cannot be those of a case; the message says why."""


@dataclass(frozen=True)
class Node:
    """``op`` is the qualified overload, empty for what is no call of an op (annotations, autograd's own nodes).

    Arguments are four lists side by side; ``strides`` is None where the recorder kept none.
    """

    number: int
    parent: int
    name: str
    op: str
    schema: str
    triton: bool
    values: Sequence[Any]
    shapes: Sequence[Any]
    types: Sequence[Any]
    strides: Sequence[Any] | None


def node_of(item: Mapping[str, Any]) -> Node:
    """The node that an object of any schema version stands for. Raises NodeError."""
    attributes = item.get("attrs")
    attrs = {
        attr["name"]: attr.get("value")
        for attr in (attributes if isinstance(attributes, list) else ())
        if isinstance(attr, dict) and isinstance(attr.get("name"), str)
    }
    inputs = item.get("inputs")
    if isinstance(inputs, dict):
        lists = [inputs.get(name) for name in ("values", "shapes", "types", "strides")]
    else:
        lists = [inputs, item.get("input_shapes"), item.get("input_types"), item.get("input_strides")]
    values, shapes, types, strides = (entry if isinstance(entry, list) else None for entry in lists)
    schema = attrs.get("op_schema", item.get("op_schema", ""))
    number, parent, name = item.get("id"), item.get("ctrl_deps", item.get("parent")), item.get("name")
    if not isinstance(number, int) or not isinstance(parent, int) or not isinstance(name, str):
        raise NodeError("a node lacks an id, a parent (ctrl_deps) or a name")
    if values is None or shapes is None or types is None or not isinstance(schema, str):
        raise NodeError(f"node {number} lacks the values, shapes or types of its inputs")
    match = _SCHEMA.match(schema) if len(schema) <= _MAX_SCHEMA else None
    op = f"{match['op']}.{match['overload'] or 'default'}" if match else ""
    triton = attrs.get("kernel_backend") == "triton"
    return Node(number, parent, name, op, schema, triton, values, shapes, types, strides or None)


def arguments_of(node: Node, wanted: Sequence[str]) -> tuple[list[Arg], bool]:
    """The arguments in the order of the recorded schema, and whether an accelerator had one of them.

    ``wanted`` are the schema's types, by which a number is told from a dtype. Raises NotACase.
    """
    if not len(node.values) == len(node.shapes) == len(node.types) == len(wanted):
        raise NotACase(f"{len(node.values)} arguments were recorded for {len(wanted)} of the schema")
    strides = node.strides if node.strides is not None and len(node.strides) == len(wanted) else [None] * len(wanted)
    reader = _Arguments(_on_accelerator(node.values))
    found = [
        reader.read(_text(kind), value, shape, steps, want)
        for kind, value, shape, steps, want in zip(node.types, node.values, node.shapes, strides, wanted, strict=True)
    ]
    return found, reader.accelerator


class _Arguments:
    """Reads the arguments of one call; tensors on one storage get the number of the first."""

    def __init__(self, accelerator: bool) -> None:
        self.accelerator = accelerator
        self._n_tensors = 0
        self._storages: dict[int, int] = {}

    def read(self, kind: str, value: Any, shape: Any, strides: Any, wanted: str, depth: int = 0) -> Arg:
        if kind.startswith("Tensor("):
            return self._tensor(kind[len("Tensor(") : -1], value, shape, strides)
        if kind.startswith(("GenericList[", "Tuple[")):
            return self._list(kind, value, shape, strides, wanted, depth)
        if kind == "None":
            return None
        if kind == "Device":
            return self._device(_text(value))
        if kind == "Generator":
            return Named("generator", "device")
        if kind == "Int" and isinstance(value, int):
            return _integer(value, wanted)
        if kind == "Double" and (isinstance(value, (int, float)) or value in ("inf", "-inf", "nan", "-nan")):
            return abs(float(value)) if value == "-nan" else float(value)
        if (kind == "Bool" and isinstance(value, bool)) or (kind == "String" and isinstance(value, str)):
            return value
        raise NotACase(f"argument of type {kind[:40]}, of which the recorder kept no value")

    def _tensor(self, dtype: str, value: Any, shape: Any, strides: Any) -> TensorSpec | None:
        if dtype.startswith("nullptr"):
            return None  # an undefined tensor
        if not isinstance(value, list) or [*map(type, value)] != [int, int, int, int, int, str]:
            raise NotACase("a tensor without its storage")
        _, storage, offset, _, _, device = value
        if device == "meta":
            raise NotACase(META)
        if not device:
            raise NotACase("not strided tensor (it has no storage)")
        if dtype not in DTYPES or dtype.startswith(("c10::q", "c10::Q")):
            raise NotACase(f"tensor of dtype {dtype[:40]}")
        sizes = _integers(shape)
        steps = contiguous_strides(sizes) if strides is None else _integers(strides)
        if len(steps) != len(sizes):
            raise NotACase(f"tensor of {len(sizes)} sizes and {len(steps)} strides")
        number = self._storages.setdefault(storage, self._n_tensors)
        self._n_tensors += 1
        return TensorSpec(
            sizes,
            steps,
            DTYPES[dtype],
            offset,
            extent=offset + reach(sizes, steps),
            storage=number,
            host=self.accelerator and not _is_accelerator(device),
        )

    def _list(self, kind: str, value: Any, shape: Any, strides: Any, wanted: str, depth: int) -> tuple[Arg, ...]:
        kinds = _parts(kind)
        if isinstance(value, list) and len(value) > _MAX_LIST:
            raise NotACase(f"a list of more than {_MAX_LIST} elements, which the recorder cuts off")
        if depth >= _MAX_DEPTH or not isinstance(value, list) or len(value) != len(kinds):
            raise NotACase(f"a list of {len(kinds)} elements without their values")
        shapes = shape if isinstance(shape, list) and len(shape) == len(kinds) else [[]] * len(kinds)
        steps = strides if isinstance(strides, list) and len(strides) == len(kinds) else [None] * len(kinds)
        return tuple(
            self.read(part, item, sizes, step, wanted, depth + 1)
            for part, item, sizes, step in zip(kinds, value, shapes, steps, strict=True)
        )

    def _device(self, name: str) -> Named:
        if name == "meta":
            raise NotACase(META)
        host = self.accelerator and not _is_accelerator(name)
        return Named("device", "cpu" if host else "device")


def _integer(value: int, wanted: str) -> Arg:
    """A number, or the torch constant that it stands for."""
    for kind, (name, _) in ENUMERATIONS.items():
        if kind in wanted:
            named = constant(kind, value)
            if named is None:
                raise NotACase(f"{name} number {value}")
            return named
    if not -_INT64 <= value < _INT64:
        raise NotACase("an integer beyond 64 bits")
    return value


def _integers(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        raise NotACase("a tensor without its sizes")
    return tuple(value)


def _on_accelerator(value: Any, depth: int = 0) -> bool:
    """Whether a tensor or device on an accelerator is among recorded values."""
    if isinstance(value, list) and depth <= _MAX_DEPTH:
        return any(_on_accelerator(item, depth + 1) for item in value)
    return isinstance(value, str) and _is_accelerator(value)


def _is_accelerator(device: str) -> bool:
    """Whether it is named ``cuda:0`` and the like (ROCm's are, too)."""
    return device.split(":")[0] in ("cuda", "hip", "xpu", "mps", "privateuseone")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else type(value).__name__


@lru_cache(maxsize=4096)
def _parts(kind: str) -> tuple[str, ...]:
    """The types of a list's elements: ``GenericList[Int,Tensor(c10::complex<float>)]`` has two."""
    parts, depth, start = [], 0, kind.index("[") + 1
    for place in range(start, len(kind) - 1):
        character = kind[place]
        depth += (character in "[(<") - (character in "])>")
        if character == "," and depth == 0:
            parts.append(kind[start:place])
            start = place + 1
    last = kind[start : len(kind) - 1]
    return (*parts, last) if last or parts else ()
