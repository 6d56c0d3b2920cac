"""What the reference side keeps of a case until the device's outputs arrive."""

from __future__ import annotations

from dataclasses import dataclass, field

from audit.replay.compare import Expected
from audit.schema import Case, Outcome, Timing


@dataclass
class Prepared:
    """A case, how its run on the CPU ended, and what is ``expected`` of each output; filled step by step.

    ``mutated``: positions of the operands that the run wrote; ``index``: where each storage lies in the spool.
    """

    case: Case
    outcome: Outcome
    device_may_run: bool
    expected: dict[str, Expected] = field(default_factory=dict)
    mutated: list[int] = field(default_factory=list)
    index: dict[str, tuple[int, int]] = field(default_factory=dict)
    timing: Timing | None = None
    notes: list[str] = field(default_factory=list)
