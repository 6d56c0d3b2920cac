"""The grammar of operator-input logs: one call of an aten op a line, as text. Read by a parser, never evaluated.

::

    line     = "cnt:" INTEGER "," call
    call     = "(" sequence "," "{" [ STRING ":" value { "," STRING ":" value } ] "}" ")"
    value    = tensor | sequence | NUMBER | STRING | NAME | device
    sequence = "(" [ value { "," value } [ "," ] ] ")" | "[" ... "]"
    tensor   = "T(" sizes "," dtype { "," NAME "=" value } ")"
             | "ST(" sizes "," dtype "," layout "," value { "," NAME "=" value } ")"
    device   = "device(" "type" "=" STRING [ "," "index" "=" INTEGER ] ")"

Source: what ``benchmarks/dynamo/microbenchmarks/operator_inp_utils.py`` of PyTorch writes (2022 on): tensors as sizes,
abbreviated dtype and, where not contiguous, ``stride=``; devices as strings; ``ST`` for sparse tensors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from audit.codec import contiguous_strides, reach
from audit.schema import Arg, Named, TensorSpec

T = TypeVar("T")

#: Lists in lists: no op takes deeper ones than ``.audit`` files may hold.
_MAX_DEPTH = 8
_INT64 = 1 << 63

_DTYPES: Mapping[str, str] = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "c32": "complex32", "c64": "complex64",
    "c128": "complex128", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "b8": "bool",
}  # fmt: skip
_WORDS: Mapping[str, Arg] = {"None": None, "True": True, "False": False, "inf": math.inf, "nan": math.nan}
_LAYOUTS = frozenset(("strided", "jagged", "_mkldnn", *(f"sparse_{form}" for form in "coo csr csc bsr bsc".split())))
_MEMORY_FORMATS = frozenset(("contiguous_format", "preserve_format", "channels_last", "channels_last_3d"))
_DTYPE_NAME = re.compile(r"(u?int|float|bfloat|complex|q?u?int|bool|half|double)[a-z0-9_]*")

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number> -?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? )
    | (?P<name>   -?[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)* )
    | (?P<string> '[^'\\]*' | "[^"\\]*" )
    | (?P<mark>   [()\[\]{},:=] )
    | (?P<end>    \Z )
    )""",
    re.VERBOSE,
)
_DEVICE = re.compile(r"(?:torch\.device\(['\"])?(cpu|cuda|hip|meta|xpu|mps)(?::\d+)?(?:['\"]\))?")


class GrammarError(ValueError):
    """A line is not in the grammar; the message says at which column (from 1) what was expected and what came."""


class Token(NamedTuple):
    """``kind`` is number, name, string, mark or end; ``column`` counts from 0."""

    kind: str
    text: str
    column: int


@dataclass(frozen=True)
class LoggedCall:
    """The arguments of one line. Each tensor has a storage of its own: the log does not say which share memory."""

    n_calls: int
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]


def parse_line(text: str) -> LoggedCall:
    """The call of a ``cnt:`` line. Raises GrammarError."""
    return _Parser(text).line()


class _Parser:
    """Recursive descent over one line, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._n_tensors = 0
        self._next = self._scan()

    def line(self) -> LoggedCall:
        if self._next.text != "cnt":
            raise self._unexpected("cnt")
        self._take()
        self._mark(":")
        n_calls = self._integer("a number of calls")
        if not 0 < n_calls < _INT64:
            raise GrammarError(f"column 1: {n_calls} calls")
        self._mark(",")
        self._mark("(")
        args = self._sequence(0)
        self._mark(",")
        kwargs = self._keywords()
        self._mark(")")
        if self._next.kind != "end":
            raise self._unexpected("the end of the line")
        return LoggedCall(n_calls, args, kwargs)

    # --- tokens ----------------------------------------------------------------------------------------------------

    def _scan(self) -> Token:
        match = _TOKEN.match(self._text, self._at)
        if match is None or match.lastgroup is None:
            raise GrammarError(f"column {self._at + 1}: {self._text[self._at : self._at + 20]!r} begins no token")
        self._at = match.end()
        return Token(match.lastgroup, match[match.lastgroup], match.start(match.lastgroup))

    def _take(self) -> Token:
        token, self._next = self._next, self._scan()
        return token

    def _mark(self, mark: str) -> None:
        if self._next.kind != "mark" or self._next.text != mark:
            raise self._unexpected(f"'{mark}'")
        self._take()

    def _at_mark(self, mark: str) -> bool:
        return self._next.kind == "mark" and self._next.text == mark

    def _unexpected(self, wanted: str) -> GrammarError:
        got = "the end of the line" if self._next.kind == "end" else repr(self._next.text[:40])
        return GrammarError(f"column {self._next.column + 1}: expected {wanted}, got {got}")

    # --- values ----------------------------------------------------------------------------------------------------

    def _value(self, depth: int) -> Arg:
        token = self._next
        if token.kind == "number":
            return _number(self._take())
        if token.kind == "string":
            text = self._take().text[1:-1]
            return _named_device(text) or text
        if token.kind == "name":
            return self._name()
        if token.text in ("(", "["):
            return self._sequence(depth + 1)
        raise self._unexpected("an argument")

    def _sequence(self, depth: int) -> tuple[Arg, ...]:
        """``( ... )`` or ``[ ... ]``; a trailing comma is Python's, for a tuple of one."""
        closing = ")" if self._at_mark("(") else "]"
        if depth > _MAX_DEPTH or not (self._at_mark("(") or self._at_mark("[")):
            raise self._unexpected("a list" if depth <= _MAX_DEPTH else f"at most {_MAX_DEPTH} lists in each other")
        self._take()
        items = self._separated(closing, lambda: self._value(depth))
        return tuple(items)

    def _separated(self, closing: str, item: Callable[[], T]) -> list[T]:
        items: list[T] = []
        while not self._at_mark(closing):
            items.append(item())
            if not self._at_mark(closing):
                self._mark(",")
        self._mark(closing)
        return items

    def _keywords(self) -> tuple[tuple[str, Arg], ...]:
        self._mark("{")
        found = self._separated("}", self._keyword)
        names = [name for name, _ in found]
        if len(set(names)) < len(names):
            raise GrammarError(f"column {self._next.column + 1}: an argument is named twice")
        return tuple(found)

    def _keyword(self) -> tuple[str, Arg]:
        if self._next.kind != "string":
            raise self._unexpected("the name of an argument")
        name = self._take().text[1:-1]
        self._mark(":")
        return name, self._value(0)

    def _name(self) -> Arg:
        """A word, a constant of torch, or what looks like a call: a tensor, a device."""
        token = self._take()
        if self._at_mark("("):
            makers: dict[str, Callable[[], Arg]] = {"T": self._tensor, "ST": self._sparse, "device": self._device}
            if token.text not in makers:
                raise GrammarError(f"column {token.column + 1}: expected T, ST or device, got {token.text[:40]!r}")
            return makers[token.text]()
        if token.text == "-inf":
            return -math.inf
        if token.text in _WORDS:
            return _WORDS[token.text]
        return _constant(token)

    def _tensor(self) -> TensorSpec:
        self._mark("(")
        sizes = self._sizes()
        self._mark(",")
        dtype = self._dtype()
        options = self._options()
        strides = options.pop("stride", None)
        if options:
            raise GrammarError(f"column {self._next.column + 1}: a tensor has no {next(iter(options))[:40]!r}")
        steps = contiguous_strides(sizes) if strides is None else _integers(strides)
        if steps is None or len(steps) != len(sizes):
            raise GrammarError(f"column {self._next.column + 1}: expected {len(sizes)} strides")
        number, self._n_tensors = self._n_tensors, self._n_tensors + 1
        return TensorSpec(sizes, steps, dtype, extent=reach(sizes, steps), storage=number)

    def _sparse(self) -> TensorSpec:
        """``layout`` other than strided: parsed, and then listed as not replayable."""
        self._mark("(")
        sizes = self._sizes()
        self._mark(",")
        dtype = self._dtype()
        self._mark(",")
        layout = self._value(0)
        self._mark(",")
        self._value(0)  # whether it is coalesced
        self._options()  # nnz=
        if not isinstance(layout, Named) or layout.kind != "layout":
            raise GrammarError(f"column {self._next.column + 1}: expected a layout for a sparse tensor")
        number, self._n_tensors = self._n_tensors, self._n_tensors + 1
        return TensorSpec(sizes, contiguous_strides(sizes), dtype, storage=number, layout=layout.name)

    def _device(self) -> Named:
        self._mark("(")
        options = dict(self._separated(")", self._option))
        named = options.get("type")
        if isinstance(named, Named):
            return named
        raise GrammarError(f"column {self._next.column + 1}: expected a device's type")

    def _options(self) -> dict[str, Arg]:
        """``, NAME = value`` up to the closing bracket."""
        if self._at_mark(")"):
            self._take()
            return {}
        self._mark(",")
        return dict(self._separated(")", self._option))

    def _option(self) -> tuple[str, Arg]:
        if self._next.kind != "name":
            raise self._unexpected("the name of an option")
        name = self._take().text
        self._mark("=")
        return name, self._value(0)

    def _sizes(self) -> tuple[int, ...]:
        sizes = _integers(self._sequence(0))
        if sizes is None or any(size < 0 for size in sizes):
            raise GrammarError(f"column {self._next.column + 1}: expected sizes of a tensor")
        return sizes

    def _dtype(self) -> str:
        dtype = self._value(0)
        if not isinstance(dtype, Named) or dtype.kind != "dtype":
            raise GrammarError(f"column {self._next.column + 1}: expected a dtype")
        return dtype.name

    def _integer(self, wanted: str) -> int:
        value = _number(self._take()) if self._next.kind == "number" else None
        if not isinstance(value, int):
            raise self._unexpected(wanted)
        return value


def _number(token: Token) -> int | float:
    if token.text.lstrip("-").isdigit():
        value = int(token.text) if len(token.text) <= 20 else _INT64
        if not -_INT64 <= value < _INT64:
            raise GrammarError(f"column {token.column + 1}: an integer of {len(token.text)} digits, beyond 64 bits")
        return value
    return float(token.text)


def _integers(value: Arg) -> tuple[int, ...] | None:
    """A list of integers, or None for anything else."""
    items = value if isinstance(value, tuple) else (None,)
    found = tuple(item for item in items if isinstance(item, int) and not isinstance(item, bool))
    return found if len(found) == len(items) else None


def _constant(token: Token) -> Named:
    """``f16``, ``torch.bool``, ``torch.strided``, ``torch.channels_last``."""
    name = token.text.removeprefix("torch.")
    if name in _DTYPES and name == token.text:
        return Named("dtype", _DTYPES[name])
    if name != token.text and name in _LAYOUTS:
        return Named("layout", name)
    if name != token.text and name in _MEMORY_FORMATS:
        return Named("memory_format", name)
    if name != token.text and _DTYPE_NAME.fullmatch(name):
        return Named("dtype", name)
    raise GrammarError(f"column {token.column + 1}: {token.text[:40]!r} is no value that this grammar knows")


def _named_device(text: str) -> Named | None:
    """``cuda:0`` is wherever the op runs; no aten op takes the name of a device as plain text."""
    match = _DEVICE.fullmatch(text)
    return Named("device", "cpu" if match[1] == "cpu" else "device") if match else None
