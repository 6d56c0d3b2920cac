"""What a gate lets pass: how much slower, how much less exact, which differences fail, and what is waived."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from audit.config import check_keys, read_toml
from audit.errors import UsageError
from audit.gate.waivers import Waiver, read_waivers

#: What can become of a case, in the order in which it is told.
Kind: TypeAlias = Literal[
    "regressed", "gone", "inconclusive", "slower", "less exact", "other finding", "other path", "flaky", "new",
    "left out", "fixed", "faster",
]  # fmt: skip
Level: TypeAlias = Literal["fail", "warn", "note", "ignore"]
LEVELS: tuple[Level, ...] = ("fail", "warn", "note", "ignore")

DEFAULT_LEVELS: Mapping[Kind, Level] = {
    "regressed": "fail",
    "gone": "fail",
    "inconclusive": "fail",
    "slower": "fail",
    "less exact": "fail",
    "other finding": "warn",
    "other path": "warn",
    "flaky": "warn",
    "new": "warn",
    "left out": "warn",
    "fixed": "note",
    "faster": "note",
}


@dataclass(frozen=True)
class Policy:
    """``slower_ratio``: candidate over baseline, of medians; below ``slower_floor_us`` more a call nothing is slower.

    ``error_ratio``: growth of the error over its noise floor; an error below ``error_floor`` such floors is no growth.
    Both are judgement calls and stand in every output. A rise of an op by a quarter is what people ask a CI to stop; a
    kernel launch varies by some microseconds; errors within a few floors differ between equally good algorithms.
    """

    slower_ratio: float = 1.25
    slower_floor_us: float = 5.0
    error_ratio: float = 2.0
    error_floor: float = 4.0
    levels: Mapping[Kind, Level] = field(default_factory=lambda: dict(DEFAULT_LEVELS))
    waivers: tuple[Waiver, ...] = ()

    def level(self, kind: Kind) -> Level:
        return self.levels.get(kind, DEFAULT_LEVELS[kind])


_NUMBERS: Mapping[str, float] = {"slower-ratio": 1.0, "slower-floor-us": 0.0, "error-ratio": 1.0, "error-floor": 0.0}


def read_policy(path: Path) -> Policy:
    """Reads a policy file. Raises UsageError for no TOML, an unknown key, or a value without sense."""
    return policy_of(read_toml(path), str(path))


def policy_of(table: Mapping[str, Any], where: str) -> Policy:
    """The policy of a TOML table. Raises UsageError."""
    check_keys(table, (*_NUMBERS, "levels", "waivers"), where)
    numbers = {
        name.replace("-", "_"): _number(table[name], least, f"{where}: {name}")
        for name, least in _NUMBERS.items()
        if name in table
    }
    return Policy(
        **numbers,
        levels={**DEFAULT_LEVELS, **_levels(table.get("levels", {}), where)},
        waivers=read_waivers(table.get("waivers", []), where, tuple(_words(kind) for kind in DEFAULT_LEVELS)),
    )


def _words(kind: Kind) -> str:
    """TOML keys have no blanks."""
    return kind.replace(" ", "-")


def _levels(table: Any, where: str) -> dict[Kind, Level]:
    by_word: dict[str, Kind] = {_words(kind): kind for kind in DEFAULT_LEVELS}
    if not isinstance(table, Mapping):
        raise UsageError(f'{where}: levels is a table such as `other-path = "fail"`', "bad-configuration")
    check_keys(table, tuple(by_word), f"{where}: levels")
    found: dict[Kind, Level] = {}
    for word, value in table.items():
        level = next((known for known in LEVELS if known == value), None)
        if level is None:
            raise UsageError(
                f"{where}: levels.{word} is {str(value)[:40]!r}; expected one of {', '.join(LEVELS)}",
                "bad-configuration",
            )
        found[by_word[word]] = level
    return found


def _number(value: Any, least: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not least <= value < math.inf:
        raise UsageError(f"{where} is {str(value)[:40]}; expected a number from {least:g} on", "bad-configuration")
    return float(value)
