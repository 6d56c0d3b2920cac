"""Ops that, seen inside another op, show a fallback path; and predictions by op, dtype and arch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import cast

from audit.knowledge.tables import globs, matches, rows
from audit.schema import DEVICE_STATUSES, Status


@dataclass(frozen=True)
class FallbackOp:
    """``chosen_ops`` that ran inside one of ``case_ops`` mean a fallback, unless one of ``unless_chosen`` ran too."""

    chosen_ops: tuple[str, ...]
    case_ops: tuple[str, ...]
    unless_chosen: tuple[str, ...]
    expected: str
    meaning: str
    remedy: str
    source: str


@dataclass(frozen=True)
class Prediction:
    """What the knowledge base foretells for ops, dtypes and archs; an empty tuple fits all."""

    code: str
    status: Status
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    archs: tuple[str, ...]
    unless_archs: tuple[str, ...]
    message: str
    remedy: str
    link: str
    source: str

    def fits(self, op: str, arch: str, dtypes: tuple[str, ...]) -> bool:
        return (
            matches(op, self.ops)
            and matches(arch, self.archs)
            and not matches(arch, self.unless_archs)
            and (not self.dtypes or any(matches(dtype, self.dtypes) for dtype in dtypes))
        )


@cache
def load_fallback_ops() -> tuple[FallbackOp, ...]:
    return tuple(
        FallbackOp(
            globs(row["chosen_ops"]),
            globs(row["case_ops"]),
            globs(row["unless_chosen"]),
            row["expected"],
            row["meaning"],
            row["remedy"],
            row["source"],
        )
        for row in rows("fallback_ops.csv")
    )


@cache
def load_predictions() -> tuple[Prediction, ...]:
    """Raises ValueError where a row's status is none about a device."""
    for row in rows("predictions.csv"):
        if row["status"] not in DEVICE_STATUSES:
            raise ValueError(f"predictions.csv: {row['status']!r} is no status about a device")
    return tuple(
        Prediction(
            row["code"],
            cast(Status, row["status"]),
            globs(row["ops"]),
            globs(row["dtypes"]),
            globs(row["archs"]),
            globs(row["unless_archs"]),
            row["message"],
            row["remedy"],
            row["link"],
            row["source"],
        )
        for row in rows("predictions.csv")
    )
