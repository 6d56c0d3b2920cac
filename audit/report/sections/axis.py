"""A logarithmic axis: where a value stands on it, and which values are written beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LogAxis:
    """From ``low`` to ``high`` (powers of ten), drawn from ``start`` to ``end``, which may run either way."""

    low: int
    high: int
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> LogAxis:
        """Whole decades around the positive finite ``values``; one decade where there is none."""
        known = [value for value in values if value > 0 and math.isfinite(value)]
        low = math.floor(math.log10(min(known))) if known else 0
        high = math.ceil(math.log10(max(known))) if known else 1
        return cls(low, max(high, low + 1), start, end)

    def place(self, value: float) -> float:
        """In the units of the drawing; what lies outside stands at the end it lies beyond."""
        level = math.log10(value) if value > 0 else self.low
        level = min(self.high, max(self.low, level))
        return round(self.start + (self.end - self.start) * (level - self.low) / (self.high - self.low), 1)

    def ticks(self, most: int = 7) -> list[tuple[float, float]]:
        """(place, value) of whole powers of ten, every second or third where there are many; of few also 2 and 5."""
        if self.high - self.low <= 2:
            steps = [factor * 10.0**power for power in range(self.low, self.high) for factor in (1, 2, 5)]
            return [(self.place(value), value) for value in (*steps, 10.0**self.high)]
        every = max(1, -(-(self.high - self.low) // most))
        return [(self.place(10.0**power), 10.0**power) for power in range(self.low, self.high + 1, every)]
