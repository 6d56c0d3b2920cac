"""A site of full size, and files of a million lines: bounded memory, and only what has changed is made again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.cli import main
from audit.dashboard.catalog import Catalog
from tests.bench.dashboard import N_CASES, build, size
from tests.dashboard.made_runs import healthy_keys, write_run
from tests.dashboard.many_runs import write_many

MIB = 1 << 20


def test_made_runs_are_as_many_as_asked_and_differ(catalog_of: Callable[[Path], Catalog], tmp_path: Path) -> None:
    write_many(tmp_path, 12, 100)
    catalog = catalog_of(tmp_path)
    assert (catalog.site().n_runs, catalog.site().n_cases, len(catalog.stacks()), len(catalog.gpus())) == (
        12,
        100,
        12,
        4,
    )
    assert len({run.share.tally for run in catalog.runs()}) > 1


@pytest.mark.evidence
@pytest.mark.timeout(7200)
def test_two_thousand_runs_are_built_in_bounded_memory_and_then_only_what_is_new(tmp_path: Path) -> None:
    write_many(tmp_path / "runs", 2000, N_CASES)
    first = build(tmp_path)
    assert (first.told["runs"], first.told["judged"], first.told["cases"]) == (2000, 2000, N_CASES)
    assert first.peak_bytes < 500 * MIB
    again = build(tmp_path)
    assert (again.told["judged"], again.told["files"]["written"]) == (0, 0)
    write_many(tmp_path / "runs", 1, N_CASES, 2000)
    more = build(tmp_path)
    assert (more.told["runs"], more.told["judged"]) == (2001, 1)
    assert more.told["files"]["written"] < more.told["files"]["total"] / 2
    assert size(tmp_path / "cache") < size(tmp_path / "runs") / 4


@pytest.mark.evidence
def test_a_run_file_of_nearly_a_million_lines_is_read_and_one_of_more_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [key] = healthy_keys(1)
    for name, n_lines in (("fits", 999_000), ("too-long", 1_000_001)):
        file = write_run(tmp_path / "runs" / name, keys=[key], created=f"2026-11-{len(name):02}T00:00:00") / "run.jsonl"
        with file.open("a") as more:
            more.write(f'{{"started":"{key}"}}\n' * n_lines)
    assert main(["dashboard", "runs", "-q", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["runs"] == 1
    [left_out] = told["left_out"]
    assert (left_out["file"], left_out["slug"]) == ("runs/too-long/run.jsonl", "too-large-run")
    assert left_out["reason"] == "has 1,000,005 lines, over 1,000,000"


@pytest.mark.evidence
@pytest.mark.timeout(1800)
def test_the_largest_run_that_is_taken_is_judged_in_bounded_memory(tmp_path: Path) -> None:
    """Some 66 MB: more cases than any program of the zoo or of torch's own samples has."""
    n_cases = 45_000
    write_many(tmp_path / "runs", 1, n_cases)
    [file] = (tmp_path / "runs").rglob("run.jsonl")
    assert 0.8 < file.stat().st_size / (64 * MIB) < 1
    found = build(tmp_path)
    assert found.told["cases"] == n_cases
    assert found.peak_bytes < 1200 * MIB
