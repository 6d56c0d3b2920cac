"""What ``rocm-audit run`` and ``trace`` were asked, whole."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from audit.schema import Status
from audit.targets import InputShape, Target


@dataclass(frozen=True)
class RunOptions:
    """What ``rocm-audit run`` was asked. ``gpu`` is the arch to predict for and to pretend while tracing, ``compare``
    another device's run.

    ``private``: the trace names nothing of the program; a map beside the output does.
    """

    target: Target
    output: Path
    device: str = "none"
    gpu: str = "gfx942"
    n_steps: int = 2
    mode: str | None = None
    fake: bool = False
    private: bool = False
    shape: InputShape = dataclasses.field(default_factory=InputShape)
    values_bytes: int = 1 << 30
    time_budget_s: float | None = None
    alternatives_limit_s: float = 60.0
    resume: bool = False
    retry_started: bool = False
    fresh: bool = False
    force: bool = False
    confirm_hangs: bool = False
    first_call_limit_s: float = 180.0
    steady_limit_s: float = 60.0
    n_repeats: int = 2
    compare: Path | None = None
    drift: bool = False
    formats: tuple[str, ...] = ("html", "json")
    fail_on: frozenset[Status] = frozenset()
