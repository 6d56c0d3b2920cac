"""Files are written whole or not at all, and an unknown format is refused before anything is written."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.errors import UnfinishedError, UsageError
from audit.report.registry import REPORTERS, write, write_text
from audit.verdicts import Judgement


def test_each_format_writes_its_file_and_findings_their_scripts(
    make_judgement: Callable[..., Judgement], tmp_path: Path
) -> None:
    judgement = make_judgement(60)
    written = write(judgement, ["html", "json", "csv", "markdown", "junit"], tmp_path / "new" / "run")
    assert [path.name for path in written] == ["report.html", "summary.json", "cases.csv", "report.md", "junit.xml"]
    assert all(path.stat().st_size > 1000 for path in written)
    scripts = {path.stem for path in (tmp_path / "new" / "run" / "repro").iterdir()}
    assert scripts == {v.key for v in judgement.verdicts if v.status not in ("supported", "inconclusive")}
    assert not list(tmp_path.rglob("*.partial"))


def test_an_unknown_format_is_refused_before_anything_is_written(
    make_judgement: Callable[..., Judgement], tmp_path: Path
) -> None:
    with pytest.raises(
        UsageError, match=r"no report format 'pdf'; there are html, json, csv, markdown, junit \[unknown-format\]"
    ):
        write(make_judgement(5), ["json", "pdf"], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_report_and_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "summary.json"
    path.write_text("old", encoding="utf-8")

    def full(descriptor: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UnfinishedError, match=r"No space left on device; .* \[unwritable-output\]"):
        write_text(path, "new")
    assert path.read_text(encoding="utf-8") == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_nothing_is_written_through_links_of_a_folder_from_elsewhere(
    make_judgement: Callable[..., Judgement], tmp_path: Path
) -> None:
    mine, folder = tmp_path / "mine", tmp_path / "run"
    mine.mkdir()
    (mine / "x.py").write_text("kept")
    folder.mkdir()
    for name in ("summary.json", "summary.json.partial"):
        (folder / name).symlink_to(mine / "x.py")
    write(make_judgement(5), ["json"], folder)
    assert (mine / "x.py").read_text() == "kept"
    assert not (folder / "summary.json").is_symlink()
    shutil.rmtree(folder / "repro", ignore_errors=True)
    (folder / "repro").symlink_to(mine)
    with pytest.raises(UnfinishedError, match=r"repro is a symbolic link, .*\[unwritable-output\]"):
        write(make_judgement(5), ["json"], folder)
    assert [path.name for path in mine.iterdir()] == ["x.py"]


def test_a_file_where_the_folder_should_be_is_one_clear_sentence(
    make_judgement: Callable[..., Judgement], tmp_path: Path
) -> None:
    (tmp_path / "run").write_text("", encoding="utf-8")
    with pytest.raises(UnfinishedError, match=r"cannot write .*run.*\[unwritable-output\]") as caught:
        write(make_judgement(5), ["json"], tmp_path / "run")
    assert caught.value.exit_code == 3


WITHOUT_TORCH = """
import sys
from pathlib import Path
sys.modules["torch"] = None  # importing it raises
from audit.report.registry import REPORTERS, write
from audit.rules.judge import judge
from audit.store import read_run
write(judge(read_run(Path(sys.argv[1]))), REPORTERS, Path(sys.argv[2]))
"""


def test_a_stored_run_is_reported_where_there_is_no_torch(tmp_path: Path) -> None:
    packed = Path(__file__).with_name("runs") / "llama.jsonl.gz"
    (tmp_path / "run.jsonl").write_bytes(gzip.decompress(packed.read_bytes()))
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "run.jsonl"), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"report.html", "summary.json", "cases.csv", "report.md", "junit.xml", "repro"}


def test_every_reporter_says_how_far_the_evidence_goes(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(20)
    for name, reporter in REPORTERS.items():
        assert "imulated" in reporter.render(judgement), name
