"""Annotates findings with documented behaviours and public issues. A finding is explained, never hidden."""

from __future__ import annotations

from dataclasses import replace

from audit.knowledge.known_behaviours import Behaviour, load_behaviours
from audit.knowledge.tables import matches
from audit.rules.arguments import dtypes_of, ops_of
from audit.schema import Case, Measurement
from audit.verdicts import Finding, Known


def annotate(finding: Finding, case: Case, measurement: Measurement | None, arch: str) -> Finding:
    """The finding with the first behaviour that fits its op, arch, dtype and code; itself where none does."""
    if finding.known is not None or finding.status == "inconclusive":
        return finding
    ops, dtypes = ops_of(case, measurement), dtypes_of(case)
    for behaviour in load_behaviours():
        if matches(finding.code, behaviour.codes) and behaviour.fits(ops, arch, dtypes):
            return replace(finding, known=as_known(behaviour))
    return finding


def as_known(behaviour: Behaviour) -> Known:
    """Title with its condition, so that a reader can see whether the report is about their case."""
    condition = f" (reported for: {behaviour.condition})" if behaviour.condition and behaviour.kind == "issue" else ""
    return Known(behaviour.title + condition, behaviour.link, behaviour.remedy)
