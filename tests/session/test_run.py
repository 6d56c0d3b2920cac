"""The main job end to end, and the commands' contract: files, exit codes, stdout for results, stderr for progress."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from audit.store import read_run
from tests.session.conftest import Cli

FAULTS = """
import os, signal, torch
def nan(call):
    out = call.run(*call.args, **call.kwargs)
    out[0, 0] = float("nan")
    return out
def crash(call):
    os.kill(os.getpid(), signal.SIGSEGV)
def host(call):
    call.copy("DtoH", 512)
    call.copy("HtoD", 512)
    return call.run(*call.args, **call.kwargs)
def refuse(call):
    raise RuntimeError("HIP error: invalid device function")
FAULTS = {"aten::mm.default": nan, "aten::exp.default": crash}
FAULTS |= {"aten::_softmax.default": host, "aten::topk.default": refuse}
"""


@pytest.fixture(scope="module")
def faulty_run(simulated_device: None, cli: Cli, opset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faulty")
    (folder / "faults.py").write_text(FAULTS)
    done = cli(
        "run",
        opset,
        "--device",
        f"sim:{folder / 'faults.py'}",
        "-o",
        folder / "run",
        "--format",
        "html,json,csv,markdown,junit",
    )
    assert done.returncode == 0, done.stderr
    assert "divergent" in done.stdout
    assert "replaying" in done.stderr
    assert "replaying" not in done.stdout
    return folder / "run"


def statuses(folder: Path) -> dict[str, str]:
    summary = json.loads((folder / "summary.json").read_text())
    return {verdict["op"]: verdict["status"] for verdict in summary["verdicts"]}


def test_each_planted_fault_gets_its_status_and_the_healthy_ops_theirs(faulty_run: Path) -> None:
    found = statuses(faulty_run)
    assert found["aten::mm.default"] == "divergent"
    assert found["aten::exp.default"] == "unsupported"
    assert found["aten::_softmax.default"] == "falling_back"
    assert found["aten::topk.default"] == "unsupported"
    assert found["aten::sum.dim_IntList"] == found["aten::cat.default"] == "supported"


def test_the_summary_follows_format_1(faulty_run: Path) -> None:
    summary = json.loads((faulty_run / "summary.json").read_text())
    assert summary["format_version"] == 1
    assert summary["evidence"] == "simulated"
    assert summary["source"] == {"kind": "script", "name": "prog.py"} | {
        key: value for key, value in summary["source"].items() if key not in ("kind", "name")
    }
    assert (summary["device"]["backend"], summary["device"]["arch"]) == ("sim", "sim")
    assert set(summary["coverage"]) == {"cases", "ops", "calls", "device_time"}
    assert sum(summary["coverage"]["cases"]["by_status"].values()) == summary["coverage"]["cases"]["total"]
    [mm] = [verdict for verdict in summary["verdicts"] if verdict["op"] == "aten::mm.default"]
    assert (mm["calls"], mm["phase"]) == (3, "forward")
    assert mm["signature"].startswith("f32[8, 16], f32[16, 4]")
    assert any(finding["code"] == "NUM202" for finding in mm["findings"])
    assert sorted(path.name for path in faulty_run.iterdir()) == [
        "cases.audit", "cases.csv", "junit.xml", "report.html", "report.md", "repro", "run.jsonl", "summary.json",
    ]  # fmt: skip


def test_every_finding_has_a_repro_script(faulty_run: Path) -> None:
    summary = json.loads((faulty_run / "summary.json").read_text())
    bad = {v["key"] for v in summary["verdicts"] if v["status"] in ("divergent", "unsupported", "falling_back", "slow")}
    assert bad == {path.stem for path in (faulty_run / "repro").glob("*.py")}


def test_report_judges_again_without_torch_and_says_the_same(faulty_run: Path, cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    copy.mkdir()
    shutil.copy(faulty_run / "run.jsonl", copy)
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')\n")
    done = cli("report", copy, "--format", "json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert statuses(copy) == statuses(faulty_run)


def test_fail_on_decides_the_exit_code(faulty_run: Path, cli: Cli, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(faulty_run, copy)
    assert cli("report", copy, "--fail-on", "divergent,unsupported").returncode == 1
    assert cli("report", copy, "--fail-on", "slow").returncode == 0
    assert cli("report", copy, "--fail-on", "sideways").returncode == 2


def test_a_run_is_not_overwritten_without_force(faulty_run: Path, cli: Cli, opset: Path) -> None:
    before = (faulty_run / "run.jsonl").read_bytes()
    done = cli("run", opset, "--device", "sim", "-o", faulty_run)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (faulty_run / "run.jsonl").read_bytes() == before


def test_force_leaves_nothing_of_the_run_before(faulty_run: Path, cli: Cli, opset: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(faulty_run, folder)
    (folder / "repro" / "gone-000000000000.py").write_text("raise SystemExit(1)\n")
    assert (folder / "cases.csv").exists()
    done = cli("run", opset, "--device", "sim", "-o", folder, "--force", "-q")
    assert done.returncode == 0, done.stderr
    assert set(statuses(folder).values()) == {"supported"}
    assert list((folder / "repro").glob("*.py")) == []
    assert sorted(path.name for path in folder.glob("*.*")) == [
        "cases.audit",
        "report.html",
        "run.jsonl",
        "summary.json",
    ]


def test_without_a_device_each_case_is_predicted_and_says_so(cli: Cli, opset: Path, tmp_path: Path) -> None:
    done = cli("run", opset, "--device", "none", "--gpu", "gfx90a", "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("not measured on AMD")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["evidence"] == "predicted"
    assert summary["device"]["arch"] == "gfx90a"
    assert read_run(tmp_path / "run").measurements == {}


def test_a_time_budget_replays_what_costs_most_and_names_what_it_left(
    cli: Cli, device: str, opset: Path, tmp_path: Path
) -> None:
    done = cli("run", opset, "--device", device, "--time-budget", "0.001s", "-o", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    assert 1 <= len(run.measurements) < len(run.cases)
    assert run.end is not None
    assert "time budget was spent" in run.end.reason
    measured = {case.op for case in run.cases if case.key in run.measurements}
    assert measured <= {"aten::topk.default", "aten::cat.default", "aten::mm.default"}
    left = [
        v
        for v in json.loads((tmp_path / "run" / "summary.json").read_text())["verdicts"]
        if v["status"] == "inconclusive"
    ]
    assert len(left) == len(run.cases) - len(run.measurements)


def test_a_script_that_raises_is_audited_that_far_and_exits_3(cli: Cli, device: str, tmp_path: Path) -> None:
    (tmp_path / "prog.py").write_text("import torch\ntorch.ones(4).exp()\nraise OSError('data set is gone')\n")
    done = cli("run", "prog.py", "--device", device, "-o", "run", cwd=tmp_path)
    assert done.returncode == 3
    assert statuses(tmp_path / "run")["aten::exp.default"] == "supported"
    assert done.stderr.strip().endswith(
        "the program ended early: OSError: data set is gone at prog.py:3 [program-ended]"
    )
    assert "data set is gone" in (tmp_path / "run" / "report.html").read_text()


def test_help_is_there_and_every_option_of_run_is_in_it(cli: Cli) -> None:
    done = cli("run", "--help")
    assert done.returncode == 0
    for option in (
        "--device",
        "--steps",
        "--resume",
        "--time-budget",
        "--fail-on",
        "--confirm-hangs",
        "--gpu",
        "--force",
    ):
        assert option in done.stdout


#: Each length gives every op of the model another shape.
LENGTHS = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 100}
model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=2))
for length in (5, 7, 9, 12, 17, 20):
    ids = torch.randint(100, (2, length))
    model(input_ids=ids, labels=ids).loss.backward()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_report_of_a_real_run_of_500_cases_with_findings_stays_under_3_mb(
    simulated_device: None, cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "faults.py").write_text(FAULTS)
    (tmp_path / "lengths.py").write_text(LENGTHS)
    done = cli(
        "run", "lengths.py", "--steps", "20", "--device", "sim:faults.py", "-o", "run", cwd=tmp_path, timeout=800
    )
    assert done.returncode == 0, done.stderr
    verdicts = json.loads((tmp_path / "run" / "summary.json").read_text())["verdicts"]
    assert len(verdicts) >= 500
    assert sum(verdict["status"] == "divergent" for verdict in verdicts) >= 10
    assert (tmp_path / "run" / "report.html").stat().st_size < 3_000_000
