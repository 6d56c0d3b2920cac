"""The calls of a played step lie in a run file in their order, and a reader takes nothing else for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from audit.drift_records import Drift, DriftEnd, DriftStarted, DriftStep
from audit.errors import UsageError
from audit.run_records import RunEnd, RunHeader
from audit.schema import DeviceInfo, Source
from audit.store import RunWriter, read_run

HEADER = RunHeader(
    evidence="simulated",
    source=Source("script", "m.py"),
    device=DeviceInfo("sim", "simulated device", "sim"),
    environment={},
    settings={},
    created="2026-11-30T00:00:00+00:00",
    audit_version="0",
    n_cases=0,
    n_recorded=0,
)
STEPS = tuple(
    DriftStep(index, f"mm-{index}", "aten::mm.default", "forward", error=1e-7, noise=2e-7, before=tuple(range(index)))
    for index in range(3)
)


def write(path: Path, *, end: DriftEnd | None = DriftEnd(3, 3)) -> None:  # noqa: B008  # frozen
    with RunWriter.create(path, HEADER, ()) as writer:
        writer.end(RunEnd(True))
        for step in STEPS:
            writer.drifted(DriftStarted(step.index, step.op))
            writer.drifted(step)
        if end is not None:
            writer.drifted(end)


def test_what_was_played_is_read_and_the_run_stays_complete(tmp_path: Path) -> None:
    write(tmp_path / "run.jsonl")
    run = read_run(tmp_path)
    assert run.drift == Drift(STEPS, DriftEnd(3, 3))
    assert run.end == RunEnd(True)


def test_a_call_that_the_device_did_not_come_back_from_stays_started(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write(path, end=None)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-1]))
    assert read_run(path).drift == Drift(STEPS[:2], None, DriftStarted(2, "aten::mm.default"))


def test_a_file_without_such_calls_has_no_drift(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run.jsonl", HEADER, ()) as writer:
        writer.end(RunEnd(True))
    assert read_run(tmp_path).drift is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            '{"drift_step": {"index": 1, "key": "mm-1", "op": "aten::mm.default", "phase": "forward"}}',
            "where 0 was next",
        ),
        ('{"drift_step": {"index": 0, "key": "../x", "op": "aten::mm.default", "phase": "forward"}}', "no op"),
        (
            '{"drift_step": {"index": 0, "key": "a", "op": "aten::a.b", "phase": "forward", "error": -1}}',
            "below nought",
        ),
        (
            '{"drift_step": {"index": 0, "key": "a", "op": "aten::a.b", "phase": "forward", "before": [0]}}',
            "later call",
        ),
        ('{"drift_step": {"index": 0, "key": "a", "op": "aten::a.b", "phase": "sideways"}}', "expected one of"),
        ('{"drift_end": {"n_calls": -1, "n_steps": 0}}', "n_calls is -1"),
    ],
)
def test_what_no_audit_writes_is_refused_with_its_line(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "run.jsonl"
    with RunWriter.create(path, HEADER, ()):
        pass
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(UsageError, match=reason) as raised:
        read_run(path)
    assert raised.value.slug == "malformed-record"
    assert f"{path}:2" in str(raised.value)
