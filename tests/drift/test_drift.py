"""The step as a whole: what no call shows alone is found and named, and a healthy device is not accused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from audit.codec import decode
from audit.drift_records import Drift
from audit.rules.drift import judge_drift
from audit.rules.thresholds import DEFAULT
from audit.verdicts import DriftJudgement, Finding


@pytest.fixture(scope="module")
def drifts(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Mapping[str, Drift]:
    path = tmp_path_factory.mktemp("drift") / "drifts.json"
    subprocess.run([sys.executable, "-m", "tests.drift.played", str(path)], cwd=checkout, check=True)
    return {name: decode(Drift, content) for name, content in json.loads(path.read_text()).items()}


def judged(drift: Drift) -> DriftJudgement:
    found = judge_drift(drift, DEFAULT)
    assert found is not None
    return found


def findings(drift: Drift) -> dict[str, Finding]:
    return {finding.code: finding for finding in judged(drift).findings}


@pytest.mark.parametrize("name", ["attention", "convolutions", "recurrent", "deep"])
def test_a_healthy_device_has_no_finding_and_stays_within_the_noise(drifts: Mapping[str, Drift], name: str) -> None:
    drift = drifts[f"healthy {name}"]
    assert judged(drift).findings == ()
    assert drift.end is not None
    assert (drift.end.n_steps, drift.end.reason) == (drift.end.n_calls, "")
    assert max(row.largest_ratio or 0.0 for row in judged(drift).modules) < DEFAULT.drift_start_ratio


def test_forward_backward_and_optimizer_are_played_and_dropout_is_fed(drifts: Mapping[str, Drift]) -> None:
    steps = drifts["healthy attention"].steps
    assert {step.phase for step in steps} == {"forward", "backward", "optimizer"}
    assert {step.op for step in steps if step.fed} == {"aten::bernoulli_.float"}
    backward = [step for step in steps if step.op.startswith("aten::scaled_dot_product") and step.phase == "backward"]
    assert len(backward) == 1
    assert all(step.error is not None and step.ratio is not None for step in backward)


def test_a_device_is_not_said_to_be_equal_where_it_only_rounds_otherwise(drifts: Mapping[str, Drift]) -> None:
    errors = [(step.error, step.noise) for step in drifts["healthy deep"].steps if step.op == "aten::addmm.default"]
    assert all(error and noise and error != noise for error, noise in errors)


def test_a_call_that_is_wrong_only_on_its_predecessors_layout_is_named_with_it(drifts: Mapping[str, Drift]) -> None:
    finding = findings(drifts["layout"])["NUM220"]
    assert finding.data["op"] == "aten::view.default"
    assert finding.data["cause"] == "layout"
    assert "after aten::scaled_dot_product_attention.default" in finding.message
    assert "operand 0 has strides" in str(finding.data["layout"])
    assert findings(drifts["layout"])["NUM221"].data["op"] == "aten::view.default"


def test_a_call_that_is_wrong_only_on_memory_just_written_is_named(drifts: Mapping[str, Drift]) -> None:
    finding = findings(drifts["memory"])["NUM220"]
    assert (finding.data["op"], finding.data["module"]) == ("aten::convolution.default", "Sequential.1.0")
    assert finding.data["cause"] == "memory or order"
    assert "after aten::relu_.default" in finding.message
    assert findings(drifts["memory"])["NUM221"].data["module"] == "Sequential.1.0"


def test_error_that_no_call_alone_is_blamed_for_starts_at_the_right_module(drifts: Mapping[str, Drift]) -> None:
    found = findings(drifts["coarse"])
    assert set(found) == {"NUM221"}
    assert found["NUM221"].data["op"] == "aten::sigmoid.default"
    assert found["NUM221"].data["module"] == "Sequential.4.kind"


def test_a_call_that_raises_is_said_and_what_follows_is_still_looked_at(drifts: Mapping[str, Drift]) -> None:
    drift = drifts["raising"]
    assert findings(drift)["SUP106"].data["n_calls"] == 12
    assert drift.end is not None
    assert drift.end.n_steps == drift.end.n_calls
    assert drift.steps[-1].error is not None
