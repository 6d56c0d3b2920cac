"""What share of a device's rates any sound kernel reaches, by the class of the op and by what binds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from audit.knowledge.op_classes import OpClass
from audit.knowledge.tables import rows


@dataclass(frozen=True)
class Expectation:
    """``least_fraction`` of the rate measured on the device, by a call that fills it; ``source`` says whence."""

    least_fraction: float
    source: str


def expectation_of(op_class: OpClass, bound: str) -> Expectation | None:
    """None for work of which nothing is expected: what its data decide (sorting), and what no table knows."""
    return _table().get((op_class, bound))


@cache
def _table() -> Mapping[tuple[str, str], Expectation]:
    return {
        (row["op_class"], row["bound"]): Expectation(float(row["least_fraction"]), row["source"])
        for row in rows("expectations.csv")
    }
