"""Literal sides of a gate, as short as a test needs them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

import pytest

from audit.gate.outcome import Allowed, GateOutcome, gate
from audit.gate.policy import Policy
from audit.gate.side import CaseState, Side
from audit.gate.waivers import Waiver
from audit.schema import EVIDENCE_BY_BACKEND, Backend, DeviceInfo

TODAY = datetime.date(2026, 11, 30)


@dataclass(frozen=True)
class Build:
    """Factories. A case is a matrix product that took 100 us on an MI300X, with a spread of 4 us."""

    def case(self, key: str = "mm-0", **fields: Any) -> CaseState:
        given: dict[str, Any] = {"op": "aten::mm.default", "status": "supported", "signature": "f32[4, 4], f32[4, 4]"}
        given |= {"device_us": 100.0, "iqr_us": 4.0, "worst_ratio": 0.5}
        given |= {"libraries": ("hipBLASLt",), "chosen_ops": ("aten::mm.default",), "sources": ("src/net.py:7",)}
        return CaseState(key, **(given | fields))

    def side(self, *cases: CaseState, backend: Backend = "hip", **fields: Any) -> Side:
        given: dict[str, Any] = {"environment": {"torch": "2.13.0", "hip": "7.2.1"}}
        device = DeviceInfo(backend, "AMD Instinct MI300X", "gfx942")
        given |= {"device": device, "evidence": EVIDENCE_BY_BACKEND[backend], "created": "2026-11-30T11:00:00Z"}
        return Side(**({"name": "net.py", "cases": cases or (self.case(),)} | given | fields))

    def gate(self, baseline: Side, candidate: Side, policy: Policy | None = None, **allowed: bool) -> GateOutcome:
        return gate(baseline, candidate, policy or Policy(), TODAY, Allowed(**allowed))

    def one(self, before: CaseState, after: CaseState, policy: Policy | None = None) -> list[tuple[str, str]]:
        """(kind, level) of what became of one case."""
        outcome = self.gate(self.side(before), self.side(after), policy)
        return [(item.difference.kind, item.level) for item in outcome.judged]

    def waiver(self, **fields: Any) -> Waiver:
        given: dict[str, Any] = {"reason": "known", "link": "https://example.org/1", "owner": "Ada"}
        return Waiver(**(given | {"expires": TODAY, "op": "mm"} | fields))


@pytest.fixture(scope="session")
def build() -> Build:
    return Build()
