"""What the audit said of each case, as lines of JSON that add up over shards and machines."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from audit.codec import signature_text
from audit.comparison import Comparison
from audit.knowledge.op_classes import class_of
from audit.rules.judge import judge
from audit.run_records import Run
from audit.schema import Case, Measurement
from audit.verdicts import Finding, Verdict
from tests.alarms.recorded import dtype_of

#: (code, status, message, name of the output or "", title of the known behaviour that explains it or "")
Said = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Row:
    """One case. ``n_outputs`` were compared by value; ``n_identical`` of these have every element of the reference.

    ``said`` are its findings but for those of time, since jobs side by side share one device, and for notes that no
    known behaviour explains. ``where`` is a case's signature where something was said.
    """

    key: str
    op: str
    op_class: str
    dtype: str
    phase: str
    status: str
    n_outputs: int
    n_identical: int
    n_not_compared: int
    said: tuple[Said, ...] = ()
    where: str = ""

    @property
    def alarms(self) -> tuple[Said, ...]:
        """What was said of the device's numbers."""
        return tuple(said for said in self.said if said[0].startswith("NUM"))

    @property
    def n_alarmed(self) -> int:
        """Outputs whose numbers were found wrong; one that a known behaviour explains counts as supported."""
        return len({output for _, status, _, output, _ in self.alarms if status != "supported"})

    @property
    def n_known(self) -> int:
        """Outputs whose numbers are off, as a known behaviour explains, and not found wrong."""
        return len({output for *_, output, _ in self.alarms}) - self.n_alarmed


def counted(run: Run) -> dict[str, Any]:
    """The run's cases as rows, and on what they were measured; its verdicts are made anew, by today's rules."""
    rows = [
        row_of(case, run.measurements.get(case.key), verdict)
        for case, verdict in zip(run.cases, judge(run).verdicts, strict=True)
        if case.key in run.measurements or case.key in run.started
    ]
    lost = run.end.reason if run.end is not None else "the run did not end by itself"
    return {
        "evidence": run.header.evidence,
        "device": run.header.device.name,
        "date": run.header.created[:10],
        "lost": lost,
        "rows": [as_json(row) for row in rows],
    }


def row_of(case: Case, measurement: Measurement | None, verdict: Verdict) -> Row:
    comparisons = measurement.comparisons if measurement is not None and measurement.device.kind == "ok" else ()
    compared = [comparison for comparison in comparisons if _is_compared(comparison)]
    said = tuple(
        (
            finding.code,
            finding.status,
            finding.message,
            str(finding.data.get("output", "")),
            finding.known.title if finding.known is not None else "",
        )
        for finding in verdict.findings
        if _counts(finding)
    )
    return Row(
        case.key,
        case.op,
        class_of(case.op),
        dtype_of(case),
        case.phase,
        verdict.status,
        len(compared),
        sum(comparison.n_different == 0 for comparison in compared),
        len(comparisons) - len(compared),
        said,
        signature_text(case.args, case.kwargs, case.grads, case.settings) if said else "",
    )


def _counts(finding: Finding) -> bool:
    explained = finding.known is not None and finding.code.startswith("NUM")
    return (finding.status != "supported" or explained) and not finding.code.startswith("SPD")


def _is_compared(comparison: Comparison) -> bool:
    return comparison.standard != "metadata" and bool(comparison.reference)


def as_json(row: Row) -> list[object]:
    return [getattr(row, field.name) for field in dataclasses.fields(row)]


def from_json(values: list[object]) -> Row:
    named = dict(zip([field.name for field in dataclasses.fields(Row)], values, strict=True))
    said = named["said"]
    assert isinstance(said, (list, tuple))
    return Row(**{**named, "said": tuple(tuple(item) for item in said)})  # type: ignore[arg-type]  # as written
