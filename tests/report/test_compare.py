"""``rocm-audit report HERE --compare THERE``: two runs that are there are set side by side, and nothing runs again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from audit.cli import main
from audit.imported_run import write_run
from audit.verdicts import Judgement
from tests.report.gpu_runs import ADD, MM, gpu_run


@pytest.fixture
def folders(make_judgement: Callable[..., Judgement], tmp_path: Path) -> tuple[Path, Path]:
    """Of an AMD run and of an NVIDIA run of the same calls."""
    here, there = tmp_path / "amd", tmp_path / "nvidia"
    for folder, backend, factor in ((here, "hip", 1.5), (there, "cuda", 1.0)):
        folder.mkdir()
        write_run(gpu_run(make_judgement, (MM, 400.0 * factor), (ADD, 40.0), backend=backend), folder)
    return here, there


def beside(folder: Path) -> dict[str, object] | None:
    found = json.loads((folder / "summary.json").read_text(encoding="utf-8")).get("beside")
    assert found is None or isinstance(found, dict)
    return found


def test_a_run_is_set_beside_another_and_stays_so(folders: tuple[Path, Path]) -> None:
    here, there = folders
    assert main(["report", str(here), "-q"]) == 0
    assert beside(here) is None
    assert main(["report", str(here), "--compare", str(there), "-q"]) == 0
    found = beside(here)
    assert found is not None
    assert (found["here_step_us"], found["there_step_us"]) == (320, 220)
    assert "1.45 times what it costs on NVIDIA H200." in (here / "report.html").read_text(encoding="utf-8")
    assert main(["report", str(here), "-q"]) == 0
    assert beside(here) == found


def test_a_folder_elsewhere_leaves_the_run_as_it_is(folders: tuple[Path, Path], tmp_path: Path) -> None:
    here, there = folders
    assert main(["report", str(here), "--compare", str(there), "-o", str(tmp_path / "out"), "-q"]) == 0
    assert beside(tmp_path / "out") is not None
    assert [path.name for path in here.iterdir()] == ["run.jsonl"]


def test_what_no_gpu_has_timed_is_refused_on_either_side(
    folders: tuple[Path, Path], make_judgement: Callable[..., Judgement], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    here, _ = folders
    sim = tmp_path / "sim"
    sim.mkdir()
    run = make_judgement(3).run
    write_run(replace(run, header=replace(run.header, n_cases=3)), sim)
    for first, second in ((sim, here), (here, sim), (here, tmp_path / "nowhere")):
        assert main(["report", str(first), "--compare", str(second), "-q"]) == 2
    said = capsys.readouterr().err
    assert "a run on sim has none" in said
    assert "got something that has no device times: a run on sim" in said
    assert "there is no such file or folder" in said
    assert not (here / "other.jsonl").exists()
