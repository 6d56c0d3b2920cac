"""The tape of a step: every call that a program made, in order, and which tensor each call took and gave.

A tape is written by the process that runs the program and read by the one that plays it, both of one audit; it never
leaves the machine. Two files: JSON lines, and the bytes of what no call on the tape has made. Tensors are numbered;
sizes, strides and offsets are in elements, ``start`` and ``nbytes`` in bytes of the second file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from audit.codec import decode, encode
from audit.schema import Case


@dataclass(frozen=True)
class Memory:
    """A storage with what was in it when the first call on the tape took it: weights, inputs, draws of the host.

    ``dtype`` is that of the tensor by which it was seen first; ``host``: it stays on the CPU beside a device.
    """

    memory: int
    dtype: str
    start: int
    nbytes: int
    host: bool = False


@dataclass(frozen=True)
class Leaf:
    """A tensor on such a storage."""

    number: int
    memory: int
    dtype: str
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Again:
    """Another view of the storage under the tensor ``of``, made where no mode sees it (``set_``, C++)."""

    number: int
    of: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


@dataclass(frozen=True)
class Fed:
    """What the program's own run gave, contiguous, for a tensor that no player can make: a random number."""

    number: int
    dtype: str
    sizes: tuple[int, ...]
    start: int
    nbytes: int


@dataclass(frozen=True)
class TapeCall:
    """One call. ``operands`` are the numbers of its tensors in the order of ``codec.tensors_of``, gradients included.

    ``results`` are those of its flattened outputs, None for what is no tensor. ``graph``: its backward is on the tape,
    as a call with ``backward_of`` the number of this one; results of that are gradients, in the order of
    ``operands``. ``fed`` outputs and written operands are not computed. ``magnitudes``: the mean magnitude of each
    floating result and written operand as the program had it, by which a player knows that it plays the same.
    """

    case: Case
    operands: tuple[int, ...]
    results: tuple[int | None, ...]
    module: str = ""
    source: str = ""
    graph: int | None = None
    backward_of: int | None = None
    fed: tuple[Fed, ...] = ()
    why_fed: str = ""
    magnitudes: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class TapeEnd:
    """``reason`` says why the tape is shorter than the program; empty where it is whole."""

    n_calls: int
    n_unseen: int
    reason: str = ""


Record: TypeAlias = "Memory | Leaf | Again | TapeCall | TapeEnd"
_KINDS: dict[str, type[Any]] = {
    "memory": Memory, "leaf": Leaf, "again": Again, "call": TapeCall, "end": TapeEnd,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}

#: Names of the two files in their folder.
CALLS_FILE, VALUES_FILE = "tape.jsonl", "tape.values"


def to_line(record: Record) -> str:
    return json.dumps({_NAMES[type(record)]: encode(record)}, separators=(",", ":")) + "\n"


def read_tape(folder: Path) -> Iterator[Record]:
    """The records in order. Raises DecodeError for what no tape holds."""
    with (folder / CALLS_FILE).open(encoding="utf-8") as file:
        for line in file:
            [(name, content)] = json.loads(line).items()
            yield decode(_KINDS[name], content)
