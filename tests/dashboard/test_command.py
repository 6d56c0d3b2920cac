"""``rocm-audit dashboard`` from outside: sites built, brought up to date, refused; what is said and with which code."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from audit import dashboard
from audit.cli import main
from audit.dashboard import judging
from audit.dashboard.site_folder import MANIFEST
from tests.dashboard.made_runs import H200, MI250X, ROCM_71, healthy_keys, write_run

KEYS = healthy_keys(3)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with two runs in ``runs``."""
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs/a", keys=KEYS, created="2026-11-01T00:00:00+00:00", environment=ROCM_71)
    write_run(tmp_path / "runs/b", keys=KEYS, created="2026-11-02T00:00:00+00:00", wrong=KEYS[:1])
    return tmp_path


def build(*arguments: str) -> int:
    return main(["dashboard", *arguments, "-q", "--cache", "cache"])


def built(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert build(*arguments, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def content(site: Path) -> dict[str, bytes]:
    return {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_a_site_is_built_of_a_folder_of_runs(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert build("runs", "-o", "site") == 0
    said = capsys.readouterr()
    assert said.out.startswith("site/index.html: 2 runs (2 judged now), 3 ops, 3 cases; ")
    assert said.err == ""
    assert (place / "site" / MANIFEST).is_file()
    assert b"AMD Instinct MI300X" in (place / "site/index.html").read_bytes()


def test_a_second_build_judges_and_writes_nothing(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build("runs")
    before = content(place / "site")
    again = built(capsys, "runs")
    assert (again["judged"], again["files"]["written"]) == (0, 0)  # type: ignore[index]
    assert content(place / "site") == before


def test_the_same_runs_give_the_same_bytes_however_they_came_together(place: Path) -> None:
    build("runs/b", "-o", "one")
    build("runs", "-o", "one")
    main(["dashboard", "runs", "-o", "two", "-q", "--cache", "other cache"])
    one, two = content(place / "one"), content(place / "two")
    assert {name for name in one if one[name] != two.get(name)} == set()
    assert one.keys() == two.keys()


def test_a_new_run_is_judged_alone_and_a_removed_one_leaves_the_site(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build("runs")
    before = content(place / "site")
    write_run(place / "runs/c", keys=KEYS, device=MI250X)
    more = built(capsys, "runs")
    assert (more["runs"], more["judged"]) == (3, 1)
    for path in (place / "runs/c").iterdir():
        path.unlink()
    fewer = built(capsys, "runs")
    assert (fewer["runs"], fewer["judged"]) == (2, 0)
    assert content(place / "site") == before


def places(site: Path) -> set[str]:
    """Every address that a reader can have noted: each file but those of scripts, and each place in a page."""
    found = {str(path.relative_to(site)) for path in site.rglob("*") if path.is_file() and path.suffix != ".js"}
    pages = {name: (site / name).read_text() for name in found if name.endswith(".html")}
    return found | {f"{name}#{key}" for name, text in pages.items() for key in re.findall(r' id="([^"]+)"', text)}


def test_links_of_a_site_hold_when_more_runs_come(place: Path) -> None:
    write_run(place / "runs/nightly", keys=KEYS, wrong=KEYS[1:2], source="bert_train.py")
    build("runs")
    before = places(place / "site")
    # Another state of a run, another of the same array of jobs, another release, another device, another program.
    whole = (place / "runs/a/run.jsonl").read_text().splitlines(keepends=True)
    assert '{"end"' in whole[-1]
    (place / "runs/a/run.jsonl").write_text("".join([*whole[:-1], f'{{"started":"{KEYS[0]}"}}\n', whole[-1]]))
    write_run(place / "runs/twin", keys=KEYS, raising=KEYS[:2], source="bert_train.py")
    write_run(place / "runs/c", keys=healthy_keys(9), created="2026-11-25T00:00:00+00:00", environment=ROCM_71)
    write_run(place / "runs/d", keys=KEYS, device=MI250X)
    write_run(place / "runs/e", keys=KEYS, device=H200, environment={"torch": "2.13.0+cu130", "cuda": "13.0"})
    write_run(place / "runs/f", keys=KEYS, source="another.py")
    build("runs")
    assert before - places(place / "site") == set()
    assert len(list((place / "site/runs").glob("*.html"))) == 8


def test_other_rules_judge_all_again(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build("runs")
    monkeypatch.setattr("audit.dashboard.build.judging_version", lambda: "other rules")
    assert built(capsys, "runs")["judged"] == 2


def test_without_a_cache_all_is_judged_each_time(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):  # AUDIT_CACHE is off in tests
        capsys.readouterr()
        assert main(["dashboard", "runs", "-q", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["judged"] == 2


def test_files_that_are_left_out_are_told_and_the_site_is_built(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = {
        "empty": b"",
        "garbage": b"\x00\xff" * 100,
        "newer": b'{"header":{"format_version":99}}\n',
        "damaged": (place / "runs/a/run.jsonl").read_bytes().replace(b'"aten::', b'"', 1),
    }
    for name, data in broken.items():
        (place / "runs" / name).mkdir()
        (place / "runs" / name / "run.jsonl").write_bytes(data)
    (place / "runs/copy").mkdir()
    (place / "runs/copy/run.jsonl").write_bytes((place / "runs/a/run.jsonl").read_bytes())
    assert build("runs") == 0
    said = capsys.readouterr()
    slugs = {line.split(":")[1].split("/")[1]: line.rpartition("[")[2] for line in said.err.splitlines()}
    assert slugs == {
        "empty": "not-a-run]", "garbage": "not-a-run]", "newer": "newer-format]", "damaged": "malformed-record]"
    }  # fmt: skip
    assert "2 runs (2 judged now)" in said.out
    assert "1 copy of a run counted once; 4 files left out" in said.out
    page = (place / "site/left-out.html").read_text()
    assert all(f"runs/{name}/run.jsonl" in page for name in broken)


def test_a_clock_that_cannot_be_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(place / "runs/c", keys=KEYS, created="1970-01-01T00:00:00+00:00", device=H200, environment={})
    assert build("runs") == 0
    assert capsys.readouterr().err.rstrip().endswith("[odd-clock]")


@pytest.mark.parametrize(
    ("arguments", "slug"),
    [
        (["nowhere"], "no-such-run"),
        (["empty"], "no-usable-run"),
        (["broken"], "no-usable-run"),
        (["runs", "-o", "thesis"], "exists"),
        (["runs", "-o", "runs/a/run.jsonl"], "exists"),
        ([], "bad-arguments"),
        (["runs", "--nonsense"], "bad-arguments"),
    ],
)
def test_wrong_use_is_one_sentence_and_exit_code_2(
    place: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], slug: str
) -> None:
    for name in ("empty", "broken", "thesis"):
        (place / name).mkdir()
    (place / "broken/run.jsonl").write_text("{}\n")
    (place / "thesis/thesis.tex").write_text("years of work")
    assert build(*arguments) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert said.err.endswith(f"[{slug}]\n")


def test_an_old_site_stays_where_no_run_is_left(place: Path) -> None:
    build("runs")
    before = content(place / "site")
    (place / "empty").mkdir()
    assert build("empty") == 2
    assert content(place / "site") == before


def test_a_folder_that_holds_something_else_is_used_when_forced(place: Path) -> None:
    (place / "site").mkdir()
    (place / "site/CNAME").write_text("example.org")
    assert build("runs") == 2
    assert build("runs", "--force") == 0
    assert build("runs") == 0
    assert (place / "site/CNAME").read_text() == "example.org"


def test_a_site_that_cannot_be_written_is_exit_code_3_or_2(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "site/runs").mkdir(parents=True)
    (place / "site/index.html").mkdir()
    assert build("runs", "--force") == 3
    assert capsys.readouterr().err.endswith("[unwritable-output]\n")
    assert build("runs", "-o", "/proc/site") == 2
    assert capsys.readouterr().err.endswith("[unwritable-output]\n")


def test_a_cache_that_cannot_be_made_is_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "file").write_text("")
    assert main(["dashboard", "runs", "-q", "--cache", "file/cache"]) == 2
    assert capsys.readouterr().err.endswith("choose another with --cache [unusable-cache]\n")


def test_a_configuration_sets_output_and_cache(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "rocm-audit.toml").write_text('[dashboard]\noutput = "public"\ncache = "kept"\n')
    assert main(["dashboard", "runs", "-q"]) == 0
    assert capsys.readouterr().out.startswith("public/index.html: ")
    assert len(list((place / "kept").glob("*.sqlite"))) == 1


def test_several_processes_give_the_same_site_as_one(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build("runs", "-o", "one")
    monkeypatch.setattr(judging, "_FEW_BYTES", 0)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    main(["dashboard", "runs", "-o", "two", "-q", "--cache", "other cache"])
    assert content(place / "one") == content(place / "two")


def test_an_interrupted_build_says_so_and_the_next_one_goes_on(place: Path) -> None:
    for number in range(30):
        write_run(place / f"runs/{number}", created=f"2026-10-{number + 1:02}T00:00:00+00:00")
    root = Path(dashboard.__file__).parent.parent.parent
    command = [sys.executable, "-m", "audit", "dashboard", "runs", "-o", "site", "--cache", "cache"]
    process = subprocess.Popen(
        command, cwd=place, env={**os.environ, "PYTHONPATH": str(root)}, stderr=subprocess.PIPE, text=True
    )
    while process.poll() is None and not (place / "cache").exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 3, said
    assert said.endswith("and the same command goes on [interrupted]\n")
    assert build("runs") == 0
