"""Annotates findings with documented behaviours and public issues. A finding is explained, never hidden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from audit.kernel_settings import setting
from audit.knowledge.known_behaviours import Behaviour, load_behaviours
from audit.knowledge.tables import matches
from audit.rules.arguments import dtypes_of, ops_of
from audit.rules.recognised import recognised
from audit.rules.thresholds import DEFAULT, Thresholds
from audit.schema import Case, Measurement
from audit.verdicts import Finding, Known

#: Before the title of a behaviour that leaves a shape in the errors, where nothing was measured to see it.
UNSEEN = "perhaps: "


def annotate(
    finding: Finding,
    case: Case,
    measurement: Measurement | None,
    arch: str,
    environment: Mapping[str, str] | None = None,
    thresholds: Thresholds = DEFAULT,
) -> Finding:
    """The finding with the first behaviour that fits its op, arch, dtype, code, phase, settings and errors; or it.

    ``environment`` has the variables that steer kernels, as the run's header has them.
    """
    if finding.known is not None or finding.status == "inconclusive":
        return finding
    ops, dtypes = ops_of(case, measurement), dtypes_of(case)
    for behaviour in load_behaviours():
        if not (matches(finding.code, behaviour.codes) and behaviour.fits(ops, arch, dtypes)):
            continue
        if not _in_force(behaviour, case, environment or {}):
            continue
        seen = _seen(behaviour, finding, case, measurement, thresholds)
        if seen is not False:
            told = replace(finding, known=as_known(behaviour, "" if seen else UNSEEN))
            return replace(told, status="supported") if seen and behaviour.explains else told
    return finding


def _in_force(behaviour: Behaviour, case: Case, environment: Mapping[str, str]) -> bool:
    """Whether the case's phase is one of those, and each setting or variable has a value with which it happens."""
    if behaviour.phases and case.phase not in behaviour.phases:
        return False
    chosen = dict(case.settings)
    for name, values in behaviour.settings.items():
        known = setting(name)
        value = chosen.get(name, known.default if known is not None else environment.get(name, ""))
        if value not in values:
            return False
    return True


def _seen(
    behaviour: Behaviour, finding: Finding, case: Case, measurement: Measurement | None, thresholds: Thresholds
) -> bool | None:
    """Only findings about numbers have errors with a shape."""
    if not behaviour.shape or not finding.code.startswith("NUM"):
        return True
    return recognised(behaviour.shape, finding, case, measurement, thresholds)


def as_known(behaviour: Behaviour, prefix: str = "") -> Known:
    """Title with its condition, so that a reader can see whether the report is about their case."""
    condition = f" (reported for: {behaviour.condition})" if behaviour.condition and behaviour.kind == "issue" else ""
    return Known(prefix + behaviour.title + condition, behaviour.link, behaviour.remedy)
