"""What was compared of each case and what that gave: the same bits, within the allowance, or more than it explains."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from audit.comparison import Comparison
from audit.report.rows import CaseRow
from audit.rules.codes import CODES
from audit.schema import IMPORTED
from audit.verdicts import Judgement

#: ``identical``: every bit of every output; ``within``: some differ, and dtype and algorithm explain it; ``differs``: a
#: rule of NUM2xx calls it divergent.
Kind: TypeAlias = Literal["identical", "within", "differs", "not compared"]


@dataclass(frozen=True)
class Accuracy:
    """``ratio`` is the largest error over its noise floor and ``allowed`` what that may be, None where no output has
    one. ``why`` says why nothing was compared."""

    row: CaseRow
    kind: Kind
    ratio: float | None = None
    allowed: float | None = None
    why: str = ""


@dataclass(frozen=True)
class Tally:
    """Cases by what their comparison gave. ``worst`` is the largest ratio that is within, with its allowance."""

    n: int
    by_kind: dict[Kind, int]
    why_not: tuple[tuple[str, int], ...]
    worst: Accuracy | None

    @property
    def n_compared(self) -> int:
        return self.n - self.by_kind["not compared"]


def allowances(judgement: Judgement) -> tuple[float, float]:
    """(against fp64, against a run in the same dtype), as this judgement had them; 0 where it does not say."""
    named = {name: value for name, value, _ in judgement.thresholds}

    def read(name: str) -> float:
        try:
            value = float(named.get(name, "0"))
        except ValueError:
            return 0.0
        return value if math.isfinite(value) and value > 0 else 0.0

    return read("allowed_ratio"), read("allowed_ratio_same_dtype")


def accuracy_of(row: CaseRow, judgement: Judgement) -> Accuracy:
    """Of one case. ``ratio`` is that of the output which comes nearest to its allowance, or lies furthest beyond."""
    header = judgement.run.header
    if header.evidence == "predicted" or header.source.kind == IMPORTED:
        why = "nothing ran" if header.evidence == "predicted" else "nothing was replayed"
        return Accuracy(row, "not compared", why=why)
    ratio, allowed = _nearest(row, allowances(judgement))
    if any(finding.code.startswith("NUM") and finding.status == "divergent" for finding in row.findings):
        return Accuracy(row, "differs", ratio, allowed)
    if why := _why_not(row):
        return Accuracy(row, "not compared", why=why)
    assert row.measurement is not None, "what was not measured was not compared"
    same = all(_is_identical(comparison) for comparison in row.measurement.comparisons)
    return Accuracy(row, "identical" if same else "within", ratio, allowed)


def tally(found: Iterable[Accuracy]) -> Tally:
    """Counts, every kind named."""
    found = list(found)
    kinds: dict[Kind, int] = dict.fromkeys(("identical", "within", "differs", "not compared"), 0)
    for item in found:
        kinds[item.kind] += 1
    reasons = Counter(item.why for item in found if item.kind == "not compared")
    within = [item for item in found if item.kind == "within" and item.ratio is not None and item.allowed]
    worst = max(within, key=lambda item: (item.ratio or 0.0) / (item.allowed or 1.0), default=None)
    return Tally(len(found), kinds, tuple(reasons.most_common()), worst)


def _nearest(row: CaseRow, allowed: tuple[float, float]) -> tuple[float | None, float | None]:
    numeric = [c for c in row.measurement.comparisons if c.standard == "numeric"] if row.measurement else []
    pairs = [(c.worst_ratio, allowed[1] if _is_loose(c) else allowed[0]) for c in numeric]
    known = [(ratio, limit) for ratio, limit in pairs if limit and not math.isnan(ratio)]
    return max(known, key=lambda pair: pair[0] / pair[1], default=(None, None))


def _is_loose(comparison: Comparison) -> bool:
    """Whether both sides carry an error: the reference is in the case's dtype, or that is double precision itself."""
    double = comparison.expected is not None and comparison.expected.dtype in ("float64", "complex128")
    return comparison.reference == "same-dtype" or double


def _why_not(row: CaseRow) -> str:
    """Empty where values were compared."""
    measurement = row.measurement
    if measurement is None:
        return "not measured"
    if row.status == "inconclusive":
        code = row.findings[0].code if row.findings else ""
        return CODES.get(code, "inconclusive").lower()
    if measurement.device.kind != "ok":
        return f"{measurement.device.kind.replace('_', ' ')} on the device"
    compared = [c for c in measurement.comparisons if c.standard != "metadata"]
    if not compared:
        return "shape, dtype and stride only" if measurement.comparisons else "no output to compare"
    return ""


def _is_identical(comparison: Comparison) -> bool:
    """Bit for bit like the CPU in the same dtype; of an output that was sampled, in what was looked at."""
    masks = comparison.n_nan_mismatch or comparison.n_inf_mismatch or comparison.n_unwritten
    return comparison.n_different == 0 and not masks
