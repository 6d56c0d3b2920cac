"""The command on a trace: what it refuses, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from audit.cli import main
from audit.run_records import RunEnd
from audit.store import RunWriter
from tests.importers.recorded import MM, kernel, op, trace
from tests.rules.conftest import Build


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trace, another of it on which the product is slower, a script and a trace that was cut off."""
    monkeypatch.chdir(tmp_path)
    trace(tmp_path / "t.json", op("aten::mm", 10, 8, 7, **MM), kernel("a", 20, 2, 0, 7))
    h100 = [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0}]
    trace(
        tmp_path / "other.json.gz", op("aten::mm", 10, 8, 7, **MM), kernel("b", 20, 8, 0, 7),
        op("aten::relu", 30, 8, 8, **MM), kernel("c", 40, 1, 0, 8),
        deviceProperties=h100, hip_runtime_version=None, cuda_runtime_version=12040,
    )  # fmt: skip
    (tmp_path / "cut.json").write_bytes((tmp_path / "t.json").read_bytes()[:-2])
    (tmp_path / "x.py").write_text("1\n")
    header = Build().header("sim", n_cases=0)
    with RunWriter.create(tmp_path / "sim.jsonl", header, ()) as writer:
        writer.end(RunEnd(True))
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["run", "t.json", "--device", "hip"], "bad-arguments"),
        (["run", "t.json", "--private"], "bad-arguments"),
        (["run", "t.json", "--resume"], "bad-arguments"),
        (["run", "t.json", "--fake"], "bad-arguments"),
        (["run", "t.json", "--", "--lr", "1"], "bad-arguments"),
        (["trace", "t.json"], "bad-arguments"),
        (["run", "t.json", "--compare", "x.py"], "bad-arguments"),
        (["run", "t.json", "--compare", "nowhere.json"], "no-target"),
        (["run", "t.json", "--compare", "sim.jsonl"], "bad-arguments"),
        (["run", "x.py", "--device", "sim", "--compare", "t.json"], "bad-arguments"),
        (["run", "t.json", "--compare", "."], "unreadable-run"),
    ],
)
def test_what_has_no_meaning_for_a_finished_run_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], slug: str
) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.rstrip().endswith(f"[{slug}]")
    assert not (here / "reports").exists()


@pytest.mark.usefixtures("here")
def test_a_trace_that_was_cut_off_is_reported_as_partial_and_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "cut.json", "-o", "out", "-q"]) == 3
    assert "Imported" in capsys.readouterr().out
    assert "This audit is partial" in Path("out/report.html").read_text()


@pytest.mark.usefixtures("here")
def test_a_run_is_replaced_only_when_asked_and_the_other_device_goes_with_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["run", "t.json", "--compare", "other.json.gz", "-o", "out", "-q"]) == 0
    assert main(["run", "t.json", "-o", "out", "-q"]) == 2
    assert "[exists]" in capsys.readouterr().err
    assert main(["run", "t.json", "-o", "out", "-q", "--force", "--fail-on", "falling_back"]) == 0
    assert "beside" not in json.loads(Path("out/summary.json").read_text())


@pytest.mark.usefixtures("here")
def test_two_devices_without_a_common_call_say_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace(here / "relu.json", op("aten::relu", 10, 8, 7, **MM), kernel("a", 20, 2, 0, 7))
    assert main(["run", "t.json", "--compare", "relu.json", "-o", "out", "-q"]) == 0
    assert "  they have no call in common" in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_a_run_folder_is_another_device_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "other.json.gz", "-o", "h100", "-q"]) == 0
    assert "Not measured on AMD" in Path("h100/report.html").read_text()
    assert main(["run", "t.json", "--compare", "h100", "-o", "out", "-q", "--format", "json,markdown"]) == 0
    beside = json.loads(Path("out/summary.json").read_text())["beside"]
    assert [(row["op"], row["here_us"], row["there_us"], row["cost_us"]) for row in beside["rows"]] == [
        ("aten::mm.default", 2, 8, -6),
        ("aten::relu.default", None, 1, -1),
    ]
    assert "| −6.00 µs | 2.00 µs | 8.00 µs | 0.25× | `mm` |" in Path("out/report.md").read_text()
    assert "beside NVIDIA H100 80GB HBM3" in capsys.readouterr().out
