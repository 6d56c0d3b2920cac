"""What an op takes, as torch's published schemas have it: the parameters of each overload, without torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache

from audit.knowledge.dispatch import load_dispatch
from audit.schema import Arg, Named

_BETWEEN = re.compile(r", (?![^\[(]*[\])])")
_PARAMETER = re.compile(
    r"""
    (?P<type>\w+) (?:\([^)]*\))? (?P<inner>\?)? (?P<list>\[(?P<length>\d*)\])? (?P<outer>\?)?
    [ ] (?P<name>\w+) (?:=(?P<default>.+))?
    """,
    re.VERBOSE,
)
_INTEGER = re.compile(r"-?\d+")
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e-?\d+)?")
#: ``Mean`` is a number in ATen/core/Reduction.h.
_WORDS: Mapping[str, Arg] = {
    "None": None, "True": True, "False": False, "Mean": 1, "long": Named("dtype", "int64"),
    "contiguous_format": Named("memory_format", "contiguous_format"),
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """``type`` is the schema's word without list and ``?``: ``Tensor``, ``SymInt``, ``ScalarType``. ``default`` is None
    where there is none."""

    name: str
    type: str
    is_list: bool
    is_optional: bool
    by_keyword: bool
    has_default: bool
    default: Arg


@lru_cache(maxsize=4096)
def overloads_of(base: str) -> Mapping[str, tuple[Parameter, ...]]:
    """The overloads of ``aten::add``, by ``aten::add.Tensor``; empty for a name that the table does not have."""
    return {op: _parameters(arguments) for op, arguments in _arguments().get(base, ())}


@cache
def _arguments() -> Mapping[str, tuple[tuple[str, str], ...]]:
    """Without the ops that torch generates, which the table has no schema of."""
    found: dict[str, list[tuple[str, str]]] = {}
    for op, entry in load_dispatch().items():
        if entry.arguments:
            found.setdefault(op.partition(".")[0], []).append((op, entry.arguments))
    return {base: tuple(entries) for base, entries in found.items()}


def _parameters(arguments: str) -> tuple[Parameter, ...]:
    """Of the text between a schema's brackets. Raises ValueError where it is none."""
    written = _BETWEEN.split(arguments)
    star = written.index("*") if "*" in written else len(written)
    return tuple(_parameter(text, place > star) for place, text in enumerate(written) if place != star)


def _parameter(text: str, by_keyword: bool) -> Parameter:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        raise ValueError(f"expected a parameter of a schema, got {text!r}")
    is_list, default = match["list"] is not None, _default(match["default"] or "None", match["length"])
    return Parameter(
        name=match["name"],
        type=match["type"],
        is_list=is_list,
        is_optional=match["outer" if is_list else "inner"] is not None,
        by_keyword=by_keyword,
        has_default=match["default"] is not None,
        default=float(default) if match["type"] == "float" and type(default) is int else default,
    )


def _default(text: str, length: str | None = None) -> Arg:
    """A number for a list of ``length`` is that often in it."""
    if length and _NUMBER.fullmatch(text):
        return (_default(text),) * int(length)
    if text.startswith("["):
        return tuple(_default(part.strip()) for part in text[1:-1].split(",") if part.strip())
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    return text.strip("\"'")
