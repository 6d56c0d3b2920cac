"""``rocm-audit gate`` on stored runs and expectations: exit codes, outputs, promotion."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audit.cli import main
from audit.codec import case_key
from audit.comparison import Comparison, TensorFact
from audit.gate.side import expectations_text, read_expectations
from audit.gate_command import read_side
from audit.gate_selftest import proofs
from audit.run_records import UNCHANGED, Alternative, Change, RunEnd, RunHeader, Trial
from audit.schema import Case, DeviceInfo, Kernel, Measurement, Outcome, Source, TensorSpec, Timing
from audit.schema import Path as PathTaken
from audit.store import RunWriter

SQUARE = TensorSpec((4, 4), (4, 1), "float32", extent=16)
FACT = TensorFact((4, 4), (4, 1), "float32")
OPS = ("aten::relu.default", "aten::neg.default")
CASES = tuple(Case(case_key(op, (SQUARE,), (), "forward", None), op, (SQUARE,)) for op in OPS)
OK, WHOLE = Outcome("ok"), RunEnd(True)
HEADER = RunHeader(
    "measured", Source("script", "net.py"), DeviceInfo("hip", "AMD Instinct MI300X", "gfx942"),
    {"torch": "2.13.0"}, {}, "2026-11-30T12:00:00+00:00", "0.1.0", n_cases=2, n_recorded=2,
)  # fmt: skip


def measured(case: Case, ratio: float = 0.5, device: Outcome = OK) -> Measurement:
    kernel = Kernel("void at::native::vectorized_elementwise_kernel<4>", 8.0)
    seen = Comparison("output 0", "numeric", FACT, FACT, reference="fp64", n_elements=16, worst_ratio=ratio)
    return Measurement(
        case.key, Outcome("ok"), device, (seen,), PathTaken(True, True, (case.op,), (kernel,)), Timing(9.0, 0.2, 30)
    )  # fmt: skip


def write(folder: Path, *measurements: Measurement, end: RunEnd | None = WHOLE, **header: Any) -> Path:
    folder.mkdir()
    with RunWriter.create(folder / "run.jsonl", replace(HEADER, **header), CASES) as writer:
        writer.all_measured(measurements)
        if end is not None:
            writer.end(end)
    return folder


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write(tmp_path / "healthy", *map(measured, CASES))


@pytest.fixture
def raising(tmp_path: Path) -> Path:
    raised = Outcome("raised", "RuntimeError", "HIP error: invalid device function")
    return write(tmp_path / "raising", measured(CASES[0]), measured(CASES[1], device=raised))


def gate(*arguments: object) -> int:
    return main(["gate", *map(str, arguments)])


def test_a_run_beside_itself_passes(healthy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate(healthy, healthy) == 0
    assert capsys.readouterr().out.splitlines()[0] == "The gate passes: nothing fails in 2 cases."


def test_a_case_that_raises_now_fails_and_every_form_is_written(
    healthy: Path, raising: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(healthy, raising / "run.jsonl", "--format", "markdown,junit,json,sarif", "--annotate") == 1
    printed = capsys.readouterr().out
    assert "neg was supported, and is unsupported" in printed.splitlines()[-1]
    assert {path.name for path in raising.iterdir()} == {"run.jsonl", "gate.md", "gate.xml", "gate.json", "gate.sarif"}
    assert json.loads((raising / "gate.json").read_text())["exit_code"] == 1


def test_annotations_leave_one_document_on_stdout(
    healthy: Path, raising: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gate(healthy, raising, "--json", "--annotate") == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out)["conclusion"] == "failed"
    assert printed.err.startswith("::error ")


@pytest.mark.parametrize("end", [None, RunEnd(False, "the device was lost: no answer")])
def test_a_candidate_that_was_cut_short_is_exit_code_3(
    healthy: Path, tmp_path: Path, end: RunEnd | None, capsys: pytest.CaptureFixture[str]
) -> None:
    short = write(tmp_path / "short", measured(CASES[0]), end=end)
    assert gate(healthy, short, "--format", "json") == 3
    assert capsys.readouterr().err.rstrip().endswith("[incomplete-candidate]")
    assert json.loads((short / "gate.json").read_text())["conclusion"] == "not finished"
    assert gate(healthy, short, "--allow-incomplete") == 0


def test_a_candidate_without_a_run_is_exit_code_3(healthy: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert gate(healthy, empty) == 3
    (empty / "run.jsonl").touch()
    assert gate(healthy, empty / "run.jsonl") == 3


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        ((), "bad-arguments"),
        (("healthy",), "bad-arguments"),
        (("healthy", "nowhere.jsonl"), "unreadable-run"),
        (("nowhere.json", "healthy"), "not-a-baseline"),
        (("broken.json", "healthy"), "not-a-baseline"),
        (("healthy", "healthy", "--policy", "none.toml"), "bad-configuration"),
        (("healthy", "healthy", "--promote"), "bad-arguments"),
        (("healthy", "--self-test"), "bad-arguments"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    healthy: Path, arguments: tuple[str, ...], slug: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(healthy.parent)
    Path("broken.json").write_text('{"format_version": 1, "cases": [{}]}')
    assert gate(*arguments) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"[{slug}]")


def test_expectations_take_the_place_of_a_run(healthy: Path, raising: Path, tmp_path: Path) -> None:
    expected = tmp_path / "expected.json"
    assert gate(expected, healthy, "--promote") == 0
    side = read_side(healthy)
    assert read_expectations(expected) == replace(side, cases=tuple(sorted(side.cases, key=lambda case: case.key)))
    assert (gate(expected, healthy), gate(expected, raising)) == (0, 1)
    assert sum(line.startswith('  {"key"') for line in expected.read_text().splitlines()) == 2, "a line for each case"


def test_expectations_written_by_hand_compare_what_they_say(healthy: Path, raising: Path, tmp_path: Path) -> None:
    device = {"backend": "hip", "name": "AMD Instinct MI300X", "arch": "gfx942"}
    cases = [{"key": case.key, "op": case.op, "status": "supported"} for case in CASES]
    by_hand = {"format_version": 1, "name": "net.py", "evidence": "measured", "device": device, "cases": cases}
    (tmp_path / "hand.json").write_text(json.dumps(by_hand))
    assert (gate(tmp_path / "hand.json", healthy), gate(tmp_path / "hand.json", raising)) == (0, 1)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"evidence": "simulated"}, "changed by hand"),
        ({"format_version": 2}, "upgrade rocm-audit"),
        ({"format_version": None}, "has no format_version"),
        ({"cases": [{"key": "a", "op": "b", "status": "fine"}]}, "expected one of supported"),
        ({"cases": [{"key": "a", "op": "b", "status": "slow"}] * 2}, "the case 'a' twice"),
        ({"cases": [{"key": "a", "op": "b", "status": "slow", "device_us": -1.0}]}, "device_us is -1.0"),
    ],
)
def test_hostile_expectations_are_refused(
    healthy: Path, tmp_path: Path, change: dict[str, Any], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(expectations_text(read_side(healthy))) | change
    (tmp_path / "bad.json").write_text(json.dumps(content))
    assert gate(tmp_path / "bad.json", healthy) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("name", ["expected.json", "baseline", "baseline.jsonl"])
def test_promotion_replaces_nothing_unasked(healthy: Path, raising: Path, tmp_path: Path, name: str) -> None:
    baseline = tmp_path / name
    assert gate(baseline, healthy, "--promote") == 0
    assert gate(baseline, raising, "--promote") == 2
    assert (gate(baseline, healthy), gate(baseline, raising)) == (0, 1)
    assert gate(baseline, raising, "--promote", "--force") == 0
    assert gate(baseline, raising) == 0
    assert list(tmp_path.rglob("*.partial")) == []


def test_what_was_cut_short_is_not_promoted(healthy: Path, tmp_path: Path) -> None:
    short = write(tmp_path / "short", measured(CASES[0]), end=None)
    assert gate(tmp_path / "b.json", short, "--promote") == 3
    assert not (tmp_path / "b.json").exists()


def test_a_regression_that_the_run_did_not_see_again_is_flaky(healthy: Path, tmp_path: Path) -> None:
    """The case run again as it was, as the second pass of a run does with what has a finding."""
    folder = write(tmp_path / "again", measured(CASES[0]), measured(CASES[1], ratio=5000.0), end=None)
    trial = Trial(CASES[1].key, UNCHANGED, "as it was", Change())
    with RunWriter.resume(folder / "run.jsonl") as writer:
        writer.tried(Alternative(trial, measured(CASES[1])))
        writer.end(RunEnd(True))
    assert [case.status for case in read_side(folder).cases] == ["supported", "divergent"]
    assert gate(healthy, folder) == 0
    assert gate(healthy, write(tmp_path / "once", measured(CASES[0]), measured(CASES[1], ratio=5000.0))) == 1


def test_the_proofs_of_the_self_test_hold_for_planted_faults_and_fail_without(build: Any) -> None:
    ops = ("aten::mul.Tensor", "aten::mm.default", "aten::addmm.default", "aten::cumsum.default")
    statuses = ("supported", "divergent", "unsupported", "falling_back")
    healthy = build.side(*(build.case(op, op=op) for op in ops), backend="sim")
    faulty = build.side(*(build.case(op, op=op, status=s) for op, s in zip(ops, statuses, strict=True)), backend="sim")
    assert [proof.holds for proof in proofs(healthy, faulty)] == [True, True, True, True]
    assert [proof.holds for proof in proofs(healthy, healthy)] == [True, False, True, True]


@pytest.mark.evidence
def test_planted_faults_in_a_replay_fail_the_gate(simulated_device: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert gate("--self-test") == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["ok"] * 4


def test_one_run_on_both_sides_is_told(healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", str(healthy), str(healthy / "run.jsonl")]) == 0
    assert capsys.readouterr().err.rstrip().endswith("[same-run]")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "run.jsonl").write_bytes((healthy / "run.jsonl").read_bytes())
    assert main(["gate", str(healthy), str(copy)]) == 0
    assert capsys.readouterr().err == ""
