"""A case's call, asked for its operands by position and name, and what a formula says of it.

A case may come from a stranger's file: an argument that is not what an op takes raises ``Unsaid``, never anything else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from audit.codec import item_bytes, reach
from audit.schema import NOT_RECORDED, Arg, Case, Named, TensorSpec, Values

#: Beyond the address space of any machine.
_MAX_ELEMENTS = 1 << 48
#: Element types by torch's number for them, which a profiler writes (c10/core/ScalarType.h).
_BY_NUMBER = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "float16", 6: "float32", 7: "float64",
    8: "complex32", 9: "complex64", 10: "complex128", 11: "bool", 15: "bfloat16", 23: "float8_e5m2",
    24: "float8_e4m3fn", 25: "float8_e5m2fnuz", 26: "float8_e4m3fnuz",
}  # fmt: skip


class Unsaid(ValueError):
    """The arguments do not say what a formula asks for."""


@dataclass(frozen=True)
class Amount:
    """What a formula says of a call: operations, the dtype that they are done in, bytes that are read and written."""

    flops: float
    dtype: str
    read_bytes: float
    written_bytes: float


@dataclass(frozen=True)
class Call:
    """The arguments of a case. ``base`` is the op's name without namespace, overload and the ``_`` of in-place ops."""

    case: Case

    @cached_property
    def name(self) -> str:
        return self.case.op.partition("::")[2].partition(".")[0]

    @cached_property
    def base(self) -> str:
        return self.name if self.name.endswith("__") else self.name.rstrip("_")

    @cached_property
    def in_place(self) -> bool:
        return self.base != self.name

    @cached_property
    def _named(self) -> dict[str, Arg]:
        return dict(self.case.kwargs)

    def get(self, place: int, name: str, default: Arg = None) -> Arg:
        """The argument, by position or by name; what was left out has its default, what a tool left out is Unsaid."""
        found = self.case.args[place] if place < len(self.case.args) else self._named.get(name, default)
        if found == NOT_RECORDED:
            raise Unsaid(name)
        return found

    def tensor(self, place: int, name: str, n_dims: int | None = None) -> TensorSpec:
        """A tensor, of at least one dimension or of ``n_dims``."""
        found = self.get(place, name)
        if not isinstance(found, TensorSpec) or (len(found.sizes) != n_dims if n_dims else not found.sizes):
            raise Unsaid(name)
        return sound(found)

    def numbers(self, place: int, name: str, n: int, default: int | None = None) -> tuple[int, ...]:
        """``n`` whole numbers from zero on, of which one may stand for all."""
        found = self.get(place, name)
        if found in (None, ()) and default is not None:
            return (default,) * n
        parts = found if isinstance(found, tuple) else (found,)
        numbers = tuple(part for part in parts if type(part) is int and 0 <= part < _MAX_ELEMENTS)
        if len(numbers) != len(parts) or len(numbers) not in (1, n):
            raise Unsaid(name)
        return numbers * (n // len(numbers))

    def is_set(self, place: int, name: str, default: bool = False) -> bool | None:
        """A flag; None where it cannot be told."""
        try:
            found = self.get(place, name, default)
        except Unsaid:
            return None
        return found if isinstance(found, bool) else None

    def dtype(self, place: int, name: str, default: str) -> str:
        """An element type, by name or as a profiler's number."""
        found = self.get(place, name)
        if isinstance(found, Named):
            return found.name
        return _BY_NUMBER.get(found, default) if type(found) is int else default

    @cached_property
    def arguments(self) -> list[tuple[int | str, Arg]]:
        """Positional ones by place, the others by name."""
        return [*enumerate(self.case.args), *self.case.kwargs]

    def operands(self, without: Iterable[int | str] = ()) -> list[TensorSpec]:
        """All tensors on the device, those in lists included, but of the arguments ``without``."""
        left_out = set(without)
        return [
            sound(spec)
            for place, argument in self.arguments
            if place not in left_out
            for spec in tensors_in(argument)
            if not spec.host
        ]

    def n_distinct(self, index: TensorSpec) -> int | None:
        """How many values an operand has that are different, where all of it was looked at."""
        tensors = [spec for _, argument in self.arguments for spec in tensors_in(argument)]
        place = next((place for place, spec in enumerate(tensors) if spec is index), -1)
        values = self.case.values.get(place, Values())
        return values.n_distinct if values.n_structured >= prod(index.sizes) else None


def tensors_in(argument: Arg) -> list[TensorSpec]:
    """The tensors of an argument, which may be a list of them, or lists in a list."""
    if isinstance(argument, tuple):
        return [spec for item in argument for spec in tensors_in(item)]
    return [argument] if isinstance(argument, TensorSpec) else []


def sound(spec: TensorSpec) -> TensorSpec:
    """The tensor, where one like it can be. Raises Unsaid."""
    possible = len(spec.sizes) == len(spec.strides) and all(
        0 <= n < _MAX_ELEMENTS for n in (*spec.sizes, *spec.strides)
    )
    if not possible or spec.layout != "strided" or prod(spec.sizes) > _MAX_ELEMENTS:
        raise Unsaid("a tensor")
    return spec


# --- bytes ---------------------------------------------------------------------------------------------------------


def size_bytes(sizes: Iterable[int], dtype: str) -> float:
    """Of a new tensor. Raises Unsaid where the element type is not known."""
    width = item_bytes(dtype)
    if not width:
        raise Unsaid(f"the size of {dtype[:40]}")
    return float(prod(sizes) * width)


def distinct_bytes(spec: TensorSpec) -> float:
    """Of the elements that lie in memory: an expanded tensor has fewer than its sizes say."""
    in_memory = prod(size for size, stride in zip(spec.sizes, spec.strides, strict=True) if stride or not size)
    return size_bytes((min(in_memory, reach(spec.sizes, spec.strides)),), spec.dtype)


def read_once(specs: Iterable[TensorSpec]) -> float:
    """Bytes of all these operands; what two of them share, where the recorder knew it, counts once."""
    by_storage: dict[int, list[TensorSpec]] = {}
    apart = 0.0
    for spec in specs:
        if spec.extent > 0:
            by_storage.setdefault(spec.storage, []).append(spec)
        else:  # written by hand, with no word on memory
            apart += distinct_bytes(spec)
    return apart + sum(_of_one_storage(members) for members in by_storage.values())


def _of_one_storage(members: list[TensorSpec]) -> float:
    spans: dict[tuple[int, int], float] = {}
    for spec in members:
        span = spec.offset, reach(spec.sizes, spec.strides)
        spans[span] = max(spans.get(span, 0.0), distinct_bytes(spec))
    whole = max(float(spec.extent * item_bytes(spec.dtype)) for spec in members)
    return min(sum(spans.values()), whole)
