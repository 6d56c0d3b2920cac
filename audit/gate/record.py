"""``gate.json``: the outcome for scripts. A contract as ``summary.json`` is, format 1; see docs/gate.md."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from audit.gate.outcome import GateOutcome, Judged
from audit.gate.side import Side
from audit.gate.waivers import Waiver

GATE_FORMAT_VERSION = 1


def render(outcome: GateOutcome) -> str:
    """JSON text: the same outcome, the same bytes."""
    return json.dumps(record(outcome), indent=1, allow_nan=False) + "\n"


def record(outcome: GateOutcome) -> dict[str, Any]:
    """Plain JSON values."""
    policy = outcome.policy
    return {
        "format_version": GATE_FORMAT_VERSION,
        "conclusion": outcome.conclusion,
        "exit_code": outcome.exit_code,
        "headline": outcome.headline,
        "remarks": list(outcome.remarks),
        "environment": [asdict(one) for one in outcome.environment],
        "trace": asdict(outcome.trace) if outcome.trace is not None else None,
        "differences": [_judged(item) for item in outcome.judged],
        "problems": list(outcome.problems),
        "n_same": outcome.n_same,
        "policy": {
            "slower_ratio": policy.slower_ratio,
            "slower_floor_us": policy.slower_floor_us,
            "error_ratio": policy.error_ratio,
            "error_floor": policy.error_floor,
            "levels": dict(policy.levels),
            "waivers": [_waiver(waiver) for waiver in policy.waivers],
        },
        "baseline": _side(outcome.baseline),
        "candidate": _side(outcome.candidate),
    }


def _judged(item: Judged) -> dict[str, Any]:
    waiver = item.waiver
    return {**asdict(item.difference), "level": item.level, "waiver": None if waiver is None else _waiver(waiver)}


def _waiver(waiver: Waiver) -> dict[str, str]:
    return {name: str(value) for name, value in asdict(waiver).items()}


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "evidence": side.evidence,
        "device": {"backend": side.device.backend, "name": side.device.name, "arch": side.device.arch},
        "created": side.created,
        "audit_version": side.audit_version,
        "incomplete": side.incomplete,
        "n_cases": len(side.cases),
    }
