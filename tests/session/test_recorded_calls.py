"""A recording of calls is a target like any other: replayed, predicted for, or made an ``.audit`` file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from audit.cli import main
from audit.opset import read_opset
from tests.session.conftest import Cli

LOG = """Operator: aten.addmm.default
cnt: 2, ((T([8], f32), T([4, 6], f32), T([6, 8], f32, stride=(1, 6))), {})
Operator: aten.gather.default
cnt: 3, ((T([5, 9], f32), 1, T([5, 2], i64)), {})
Operator: aten.cudnn_batch_norm.default
cnt: 4, ((T([8], f32),), {})
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "step.txt"
    path.write_text(LOG)
    return path


def summary_of(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return content


def test_the_summary_says_where_the_calls_came_from(log: Path):
    assert main(["run", str(log), "--device", "none", "-o", str(log.parent / "run")]) == 0
    summary = summary_of(log.parent / "run")
    assert summary["source"] == {"kind": "operator log, values synthesised", "name": "step.txt"}
    assert [(verdict["op"], verdict["calls"]) for verdict in summary["verdicts"]] == [
        ("aten::addmm.default", 2),
        ("aten::gather.default", 3),
    ]
    assert "operator log, values synthesised step.txt" in (log.parent / "run" / "report.html").read_text()


@pytest.mark.evidence
def test_a_log_is_replayed_like_any_other_trace(cli: Cli, device: str, log: Path):
    done = cli("run", log, "--device", device, "--format", "json", cwd=log.parent)
    assert done.returncode == 0, done.stderr
    statuses = {verdict["op"]: verdict["status"] for verdict in summary_of(log.parent / "reports" / "step")["verdicts"]}
    assert statuses == {"aten::addmm.default": "supported", "aten::gather.default": "supported"}


def test_a_log_becomes_an_audit_file(log: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["trace", str(log), "-o", str(log.parent / "step.audit")]) == 0
    assert "2 cases from 9 calls" in capsys.readouterr().out
    assert [(case.op, case.n_calls) for case in read_opset(log.parent / "step.audit").cases] == [
        ("aten::addmm.default", 2),
        ("aten::gather.default", 3),
    ]


def test_the_private_form_speaks_of_the_log_without_naming_anything(log: Path):
    log.write_text(LOG + "cnt: 1, ((acme(1),), {})\n")
    assert main(["trace", str(log), "--private", "-o", str(log.parent / "step.audit")]) == 0
    trace = read_opset(log.parent / "step.audit")
    assert trace.source.private
    assert "step" not in trace.source.name
    reasons = [item.reason for item in trace.not_audited]
    assert any(reason.startswith("not in the grammar of operator logs: column 11: expected T") for reason in reasons)
    assert not any("acme" in reason for reason in reasons)


@pytest.mark.parametrize("option", [["--fake"], ["--batch", "2"], ["--", "--lr", "1"]], ids=lambda words: words[0])
def test_what_a_recording_cannot_be_asked_is_wrong_use(
    option: list[str], log: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["trace", str(log), *option]) == 2
    assert capsys.readouterr().err.endswith("[bad-arguments]\n")


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "step.txt"
    path.write_text("Operator: aten.exp.default\n")
    assert main(["run", str(path), "--device", "none", "-o", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.endswith(f"{path} holds no call of an op [unreadable-recording]\n")
