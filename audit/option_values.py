"""The values of command-line options, read with their units. Wrong ones are argparse's own errors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from audit.schema import STATUSES

FORMATS = ("html", "json", "csv", "markdown", "junit")
GATE_FORMATS = ("markdown", "junit", "json", "sarif")


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a positive number, got {text}")
    return number


def size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMGT]?)B?", text.strip(), re.IGNORECASE)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a size such as 512M or 2G, got {text!r}")
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2].upper()]


def duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a duration such as 90s, 15m or 2h, got {text!r}")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def formats(text: str) -> tuple[str, ...]:
    return tuple(_chosen(text, FORMATS, "format"))


def gate_formats(text: str) -> tuple[str, ...]:
    return tuple(_chosen(text, GATE_FORMATS, "format"))


def statuses(text: str) -> frozenset[str]:
    return frozenset(_chosen(text, STATUSES, "status"))


def _chosen(text: str, choices: Sequence[str], what: str) -> list[str]:
    chosen = [part.strip() for part in text.split(",") if part.strip()]
    for part in chosen:
        if part not in choices:
            raise argparse.ArgumentTypeError(f"unknown {what} {part!r}; known are {', '.join(choices)}")
    return chosen
