"""Messages and environment variables of PyTorch and the ROCm libraries, and what each means for an audit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from audit.knowledge.tables import rows


@dataclass(frozen=True)
class Signal:
    """One message. ``kind``: warning, error, log. ``signal_class``: falling_back, slow, unsupported, crash, env, info,
    nondeterministic, expected_on_rocm. ``scope`` names the op family it is about."""

    kind: str
    regex: re.Pattern[str]
    example: str
    signal_class: str
    scope: str
    meaning: str
    action: str
    source: str


@dataclass(frozen=True)
class Variable:
    """An environment variable that steers kernels. ``effect``: selects_kernel, changes_numerics, spoofs_device, ..."""

    name: str
    values: str
    effect: str
    meaning: str
    source: str


@cache
def load_signals() -> tuple[Signal, ...]:
    """Every message, in file order: the more telling ones first."""
    return tuple(
        Signal(
            row["kind"],
            re.compile(row["regex"]),
            row["example"],
            row["signal_class"],
            row["scope"],
            row["meaning"],
            row["action"],
            row["source"],
        )
        for row in rows("signals.csv")
    )


@cache
def load_variables() -> tuple[Variable, ...]:
    """The environment variables worth recording with a run."""
    return tuple(
        Variable(row["name"], row["values"], row["effect"], row["meaning"], row["source"])
        for row in rows("environment_variables.csv")
    )


def match_signal(text: str) -> Signal | None:
    """The first message found anywhere in ``text``, None where nothing is recognised."""
    return next((signal for signal in load_signals() if signal.regex.search(text)), None)


def match_signals(text: str) -> tuple[Signal, ...]:
    """Every message found in ``text``, each once, in file order."""
    return tuple(signal for signal in load_signals() if signal.regex.search(text))
