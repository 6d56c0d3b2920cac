"""Literal cases, measurements and runs, as short as a test needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from audit.codec import contiguous_strides
from audit.comparison import Comparison, TensorFact
from audit.rules.judge import judge
from audit.rules.registry import RULES
from audit.rules.thresholds import DEFAULT, Thresholds
from audit.run_records import PreflightCheck, Run, RunEnd, RunHeader
from audit.schema import EVIDENCE_BY_BACKEND, Backend, Case, DeviceInfo, Measurement, Outcome, Path, Source, TensorSpec
from audit.verdicts import Finding, Judgement

ARCHS: Mapping[Backend, str] = {"hip": "gfx942", "cuda": "sm_90", "sim": "sim", "cpu": "cpu", "none": "gfx942"}
NAMES: Mapping[Backend, str] = {
    "hip": "AMD Instinct MI300X",
    "cuda": "NVIDIA H100",
    "sim": "sim",
    "cpu": "cpu",
    "none": "AMD Instinct MI300X",
}


@dataclass(frozen=True)
class Build:
    """Factories. Notes of no interest here (FBK306: nobody watched the path) are avoided by a watched path."""

    @property
    def watched(self) -> Path:
        return Path(observed=True, complete=True)

    def tensor(self, *sizes: int, dtype: str = "float32") -> TensorSpec:
        return TensorSpec(sizes, contiguous_strides(sizes), dtype)

    def case(self, op: str = "aten::mm.default", *args: Any, key: str = "mm-0", **fields: Any) -> Case:
        return Case(key, op, args or (self.tensor(4, 4), self.tensor(4, 4)), **fields)

    def fact(self, *sizes: int, dtype: str = "float32", strides: tuple[int, ...] | None = None) -> TensorFact:
        return TensorFact(sizes, contiguous_strides(sizes) if strides is None else strides, dtype)

    def comparison(self, standard: Any = "numeric", **fields: Any) -> Comparison:
        given = {"expected": self.fact(4, 4), "actual": self.fact(4, 4), "n_elements": 16}
        given |= {"reference": "fp64" if standard == "numeric" else "same-dtype"}
        return Comparison("output 0", standard, **(given | fields))

    def measurement(self, *comparisons: Comparison, **fields: Any) -> Measurement:
        given: dict[str, Any] = {
            "key": "mm-0",
            "reference": Outcome("ok"),
            "device": Outcome("ok"),
            "path": self.watched,
        }
        return Measurement(comparisons=comparisons or (self.comparison(),), **(given | fields))

    def header(self, backend: Backend = "sim", arch: str | None = None, **fields: Any) -> RunHeader:
        given: dict[str, Any] = {"environment": {}, "settings": {}, "n_cases": 1, "n_recorded": 1}
        given |= {"source": Source("script", "model.py")}
        return RunHeader(
            evidence=EVIDENCE_BY_BACKEND[backend],
            device=DeviceInfo(backend, NAMES[backend], arch or ARCHS[backend]),
            created="2026-11-30T11:00:00Z",
            audit_version="0.1",
            **(given | fields),
        )

    def findings(
        self,
        measurement: Measurement,
        case: Case | None = None,
        backend: Backend = "sim",
        thresholds: Thresholds = DEFAULT,
        **header: Any,
    ) -> list[Finding]:
        """What all rules say of one measurement, without annotations."""
        given = case or self.case()
        return [f for rule in RULES for f in rule(given, measurement, self.header(backend, **header), thresholds)]

    def codes(self, *args: Any, **kwargs: Any) -> list[tuple[str, str]]:
        """(code, status) of each finding."""
        return [(finding.code, finding.status) for finding in self.findings(*args, **kwargs)]

    def judgement(
        self,
        cases: tuple[Case, ...],
        measurements: tuple[Measurement, ...] = (),
        backend: Backend = "sim",
        started: tuple[str, ...] = (),
        end: RunEnd | None = None,
        preflight: tuple[PreflightCheck, ...] = (),
        arch: str | None = None,
    ) -> Judgement:
        header = self.header(backend, arch, preflight=preflight, n_cases=len(cases), n_recorded=len(cases))
        return judge(Run(header, cases, {m.key: m for m in measurements}, frozenset(started), end))


@pytest.fixture(scope="session")
def build() -> Build:
    return Build()
