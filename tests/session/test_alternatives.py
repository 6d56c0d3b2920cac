"""A whole audit with its second pass: the cure is in every report, and a run that was cut off there goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from audit.cli import main
from audit.judged_folder import report
from audit.store import read_run

FAULTS = """
def wrong(call):
    out = call.run(*call.args, **call.kwargs)
    return out if call.args[0].is_contiguous() else out + 1
def refuse(call):
    raise RuntimeError("MIOpen Error: miopenStatusUnknownError")
FAULTS = {"aten::mm.default": wrong, "aten::exp.default": refuse}
"""
LOG = """Operator: aten.mm.default
cnt: 1, ((T([8, 6], f32, stride=(1, 8)), T([6, 4], f32)), {})
Operator: aten.exp.default
cnt: 2, ((T([8], f32),), {})
Operator: aten.sin.default
cnt: 1, ((T([8], f32),), {})
"""


@pytest.fixture(scope="module")
def arguments(simulated_device: None, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What runs the calls on a device with the faults, into the folder at the end."""
    home = tmp_path_factory.mktemp("alternatives")
    (home / "faults.py").write_text(FAULTS)
    (home / "step.txt").write_text(LOG)
    return ["run", str(home / "step.txt"), "--device", f"sim:{home / 'faults.py'}", "-q", "-o", str(home / "run")]


@pytest.fixture(scope="module")
def folder(arguments: list[str]) -> Path:
    assert main(arguments) == 0
    return Path(arguments[-1])


def test_each_alternative_is_in_the_run_file_and_a_case_without_one_was_not_run_again(folder: Path) -> None:
    run = read_run(folder)
    [(key, tried)] = run.alternatives.items()
    assert key.startswith("mm-")
    assert [alternative.trial.name for alternative in tried] == ["unchanged", "deterministic", "contiguous"]
    assert run.end is not None
    assert run.end.complete


def test_the_summary_the_page_and_the_script_name_the_cure(folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    [mm] = [verdict for verdict in summary["verdicts"] if verdict["op"] == "aten::mm.default"]
    assert [(row["name"], row["effect"]) for row in mm["tried"]] == [
        ("unchanged", "as before"),
        ("contiguous", "cures"),
        ("deterministic", "no help"),
    ]
    page = (folder / "report.html").read_text()
    assert "Tried instead" in page
    assert "Alternatives were tried for 1 of 1 case that have one" in page
    assert "# Cure: make the inputs contiguous: x.contiguous()" in (folder / "repro" / f"{mm['key']}.py").read_text()
    assert "tried" not in next(v for v in summary["verdicts"] if v["op"] == "aten::sin.default")


def test_a_report_that_is_made_again_says_the_same(folder: Path, tmp_path: Path) -> None:
    report(folder, ["json"], tmp_path)
    assert json.loads((tmp_path / "summary.json").read_text()) == json.loads((folder / "summary.json").read_text())


@pytest.mark.slow
def test_a_run_that_was_cut_off_in_the_second_pass_goes_on(arguments: list[str], folder: Path, tmp_path: Path) -> None:
    again = tmp_path / "run"
    shutil.copytree(folder, again)
    lines = (again / "run.jsonl").read_text().splitlines(keepends=True)
    cut = next(n for n, line in enumerate(lines) if line.startswith('{"trying"'))
    (again / "run.jsonl").write_text("".join(lines[:cut]) + lines[cut][:9])
    assert main([*arguments[:-1], str(again), "--resume"]) == 0
    (found, expected) = (
        {key: [a.trial for a in tried] for key, tried in read_run(path).alternatives.items()}
        for path in (again, folder)
    )
    assert found == expected
