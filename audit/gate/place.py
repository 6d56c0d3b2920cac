"""Where in the program a difference stands, for annotations and SARIF. Run files come from strangers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from audit.gate.comparison import Difference

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
