"""Reads the data files of this package, once each, and matches names against globs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from fnmatch import translate
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def rows(name: str) -> tuple[Mapping[str, str], ...]:
    """The rows of a CSV file beside this module. Raises ValueError where a row is longer or shorter than its header."""
    text = files("audit.knowledge").joinpath(name).read_text(encoding="utf-8")
    table = tuple(csv.DictReader(text.splitlines()))
    for number, row in enumerate(table, 2):
        if None in row or None in row.values():
            raise ValueError(f"{name}:{number} does not have the {len(table[0])} columns of the header")
    return table


@cache
def document(name: str) -> Any:
    """The content of a JSON file beside this module."""
    return json.loads(files("audit.knowledge").joinpath(name).read_text(encoding="utf-8"))


def globs(text: str) -> tuple[str, ...]:
    """``a|b`` -> ``("a", "b")``; an empty text is no glob at all."""
    return tuple(part.strip() for part in text.split("|") if part.strip())


def matches(name: str, patterns: tuple[str, ...]) -> bool:
    """True where one of the globs fits the whole name, case-sensitively."""
    return _regex(patterns).match(name) is not None


@cache
def _regex(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """One expression for all globs: a judgement of 5,000 cases asks a million times. No glob fits nothing."""
    return re.compile("|".join(translate(pattern) for pattern in patterns) or r"(?!)")
