"""``summary.json``, format 1: the file that gates, dashboards and other people's scripts read. A contract, see docs."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from audit.rules.lost_time import LostTime, lost_by_library, lost_by_module, lost_by_op, step_of
from audit.schema import STATUSES, NotAudited
from audit.verdicts import Coverage, DriftJudgement, Finding, Judgement, SideBySide, SideRow, Tried, Verdict

SUMMARY_FORMAT_VERSION = 1


def render(judgement: Judgement) -> str:
    """The summary as JSON text: same judgement, same bytes."""
    return json.dumps(summary(judgement), indent=1, allow_nan=False) + "\n"


def summary(judgement: Judgement) -> dict[str, Any]:
    """The summary as plain JSON values; times in microseconds, non-finite numbers as text (JSON has none)."""
    header = judgement.run.header
    return {
        "format_version": SUMMARY_FORMAT_VERSION,
        "evidence": header.evidence,
        "headline": judgement.headline,
        "created": header.created,
        "audit_version": header.audit_version,
        "source": {"kind": header.source.kind, "name": header.source.name},
        "device": {"backend": header.device.backend, "name": header.device.name, "arch": header.device.arch},
        "environment": dict(header.environment),
        "coverage": {coverage.unit: _coverage(coverage) for coverage in judgement.coverage},
        "root_causes": [_finding(cause) for cause in judgement.root_causes],
        "verdicts": [_verdict(verdict) for verdict in judgement.verdicts],
        "not_audited": [_not_audited(item) for item in header.not_audited],
        **({"beside": _beside(judgement.beside)} if judgement.beside is not None else {}),
        **_limits(judgement),
        **_drift(judgement.drift),
    }


def _limits(judgement: Judgement) -> dict[str, Any]:
    """The step against the limits of the device, and who loses what: all groups, dearest first."""
    run, verdicts = judgement.run, judgement.verdicts
    step = step_of(run, verdicts)
    if step is None:
        return {}
    numbers = {name: _number(value) for name, value in asdict(step).items()}
    return {
        "step": {**numbers, "utilisation": _number(step.utilisation)},
        "lost_by": {
            "op": _groups(lost_by_op(run, verdicts)),
            "module": _groups(lost_by_module(run, verdicts)),
            "library": _groups(lost_by_library(run, verdicts)),
        },
    }


def _drift(drift: DriftJudgement | None) -> dict[str, Any]:
    """The step that was played whole: what is wrong in it, and its modules in the order in which they end."""
    if drift is None:
        return {}
    modules = [{name: _number(value) for name, value in asdict(row).items()} for row in drift.modules]
    findings = [_finding(finding) for finding in drift.findings]
    return {"drift": {"sentence": drift.sentence, "findings": findings, "modules": modules}}


def _groups(groups: list[LostTime]) -> list[dict[str, Any]]:
    return [{name: _number(value) for name, value in asdict(group).items()} for group in groups]


def _not_audited(item: NotAudited) -> dict[str, Any]:
    content = {"what": item.what, "reason": item.reason, "calls": item.n_calls, "seen": item.n_seen}
    if item.nbytes:
        content |= {"bytes": item.nbytes, "ranks": item.n_ranks}
    if item.kernels:
        content["device_us"] = _number(sum(kernel.us for kernel in item.kernels))
    return content


def _beside(beside: SideBySide) -> dict[str, Any]:
    """Another device's times, dearest first, then what gains, then what only one of the two ran."""
    other = beside.other
    return {
        "evidence": other.evidence,
        "source": {"kind": other.source.kind, "name": other.source.name},
        "device": {"backend": other.device.backend, "name": other.device.name, "arch": other.device.arch},
        "here_step_us": _number(beside.here_step_us),
        "there_step_us": _number(beside.there_step_us),
        "rows": [_side_row(row) for row in (*beside.rows, *beside.only_here, *beside.only_there)],
    }


def _side_row(row: SideRow) -> dict[str, Any]:
    return {name: _number(value) if name != "keys" else list(value) for name, value in asdict(row).items()}


def _coverage(coverage: Coverage) -> dict[str, Any]:
    by_status = {status: _number(coverage.by_status.get(status, 0)) for status in STATUSES}
    return {"total": _number(coverage.total), "by_status": by_status}


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "key": verdict.key,
        "op": verdict.op,
        "status": verdict.status,
        "calls": verdict.n_calls,
        "phase": verdict.phase,
        "modules": list(verdict.modules),
        "signature": verdict.signature,
        "findings": [_finding(finding) for finding in verdict.findings],
        "device_us": _number(verdict.device_us),
        "reference_us": _number(verdict.reference_us),
        "library": verdict.library,
        "total_us": _number(verdict.total_us),
        "floor_us": _number(verdict.floor_us),
        "bound": verdict.bound,
        "flops": _number(verdict.flops),
        "op_class": verdict.op_class,
        **({"tried": [_tried(item) for item in verdict.tried]} if verdict.tried else {}),
    }


def _tried(item: Tried) -> dict[str, Any]:
    return {name: _number(value) for name, value in asdict(item).items()}


def _finding(finding: Finding) -> dict[str, Any]:
    content: dict[str, Any] = {
        "code": finding.code,
        "status": finding.status,
        "message": finding.message,
        "data": {name: _number(value) for name, value in finding.data.items()},
    }
    if finding.known:
        content["known"] = {
            "title": finding.known.title,
            "link": finding.known.link,
            "remedy": finding.known.remedy,
        }
    return content


def _number(value: str | float | None) -> str | float | None:
    """Counts as integers, and what JSON cannot hold as ``"inf"``, ``"-inf"`` or ``"nan"``."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return repr(value)
        if value.is_integer() and abs(value) < 2**53:
            return int(value)
    return value
