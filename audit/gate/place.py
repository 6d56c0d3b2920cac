"""Where in the program a difference stands, for annotations and SARIF. Run files come from strangers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from audit.gate.comparison import Difference

_KEY = re.compile(r'"key":\s*"([A-Za-z0-9_-]{1,100})"')
_SOURCE = re.compile(r"([^:\x00-\x1f]{1,400}):(\d{1,7})")


@dataclass(frozen=True)
class Place:
    """A file of the repository, by its path from there with slashes, and a line from 1 on."""

    file: str
    line: int


def place_of(difference: Difference) -> Place | None:
    """The first source that may be a file of the repository: not one from elsewhere, and no pseudonym."""
    for source in difference.sources:
        match = _SOURCE.fullmatch(source)
        if match is None or int(match[2]) < 1:
            continue
        parts = match[1].replace("\\", "/").split("/")
        if "" not in parts and ".." not in parts and parts[-1].endswith((".py", ".ipynb")):
            return Place("/".join(part for part in parts if part != "."), int(match[2]))
    return None


@dataclass(frozen=True)
class Anchor:
    """The baseline's file, for what is of no line of the program: a case that is gone, a run that drifts.

    ``lines`` are those of its cases by key, where it is one of expectations.
    """

    file: str = "baseline"
    lines: Mapping[str, int] = field(default_factory=dict)

    def place(self, key: str) -> Place:
        return Place(self.file, self.lines.get(key, 1))


def anchor_of(baseline: Path) -> Anchor:
    """Its path from the folder one works in, which on a CI server is the repository; of one elsewhere its name."""
    full, here = baseline.absolute(), Path.cwd()
    file = (full.relative_to(here) if full.is_relative_to(here) and full != here else Path(full.name)).as_posix()
    lines: dict[str, int] = {}
    if baseline.suffix == ".json":
        with baseline.open(encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                for key in _KEY.findall(line):
                    lines.setdefault(key, number)
    return Anchor(file, lines)
