"""Turns numbers, places and outcomes into the words that findings use."""

from __future__ import annotations

import signal
from collections.abc import Sequence


def number(value: float) -> str:
    """Two significant digits: ``0.031``, ``1.2e-07``."""
    return f"{value:.2g}"


def element(text: str) -> str:
    """An element as a run file holds it, floats cut to nine digits: ``1.7534688711`` -> ``1.75346887``."""
    try:
        return text if text.lstrip("-").isdigit() else f"{float(text):.9g}"
    except ValueError:
        return text  # complex, True, or nothing


def duration(us: float) -> str:
    """``830 µs``, ``12 ms``, ``3.4 s``."""
    if us < 1_000:
        return f"{us:.3g} µs"
    if us < 1_000_000:
        return f"{us / 1_000:.3g} ms"
    return f"{us / 1_000_000:.3g} s"


def size(nbytes: float) -> str:
    """``96 B``, ``4.0 KiB``, ``1.5 MiB``."""
    if nbytes < 1024:
        return f"{nbytes:g} B"
    for unit in ("KiB", "MiB"):
        nbytes /= 1024
        if nbytes < 1024:
            return f"{nbytes:.1f} {unit}"
    return f"{nbytes / 1024:.1f} GiB"


def place(index: Sequence[int]) -> str:
    """``[0, 7]``; a 0-dim tensor has the place ``[]``."""
    return f"[{', '.join(map(str, index))}]"


def first_line(text: str, limit: int = 240) -> str:
    """The first line that says something, cut at ``limit`` characters."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= limit else line[: limit - 3] + "..."


def ending(signal_number: int | None, exit_code: int | None) -> str:
    """How a process ended: ``with SIGSEGV``, ``with exit code 134``."""
    if signal_number is not None:
        try:
            return f"with {signal.Signals(signal_number).name}"
        except ValueError:
            return f"with signal {signal_number}"
    return f"with exit code {exit_code}" if exit_code is not None else "without a trace"


def plural(count: int, noun: str) -> str:
    """``1 case``, ``3 cases``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
