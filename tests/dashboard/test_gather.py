"""Folders to run files: what is found, what counts once, what is left out and why; links, pipes and huge files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from audit.dashboard import gather as gathering
from audit.dashboard.gather import gather
from audit.errors import UsageError

HEADER = b'{"header":{"created":"2026-12-01"}}\n'


def put(path: Path, content: bytes = HEADER) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def labels(*paths: Path) -> list[str]:
    return [file.label for file in gather(paths).files]


def reasons(*paths: Path) -> dict[str, str]:
    return {one.path: one.slug for one in gather(paths).left_out}


def test_runs_are_found_anywhere_below_a_folder_in_the_order_of_their_names(tmp_path: Path) -> None:
    put(tmp_path / "all/b/run.jsonl", HEADER + b"1\n")
    put(tmp_path / "all/a/deep/er/run.jsonl", HEADER + b"2\n")
    put(tmp_path / "all/c/mi300x.jsonl", HEADER + b"3\n")
    assert labels(tmp_path / "all") == ["all/a/deep/er/run.jsonl", "all/b/run.jsonl", "all/c/mi300x.jsonl"]


def test_a_run_folder_and_a_run_file_are_runs_and_one_that_is_given_twice_is_one(tmp_path: Path) -> None:
    file = put(tmp_path / "mi300x/run.jsonl")
    assert labels(tmp_path / "mi300x", file, tmp_path) == ["mi300x/run.jsonl"]


def test_another_devices_run_beside_a_run_is_part_of_it(tmp_path: Path) -> None:
    put(tmp_path / "x/run.jsonl")
    put(tmp_path / "x/other.jsonl", HEADER + b"1\n")
    assert labels(tmp_path / "x") == ["x/run.jsonl"]


def test_files_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    put(tmp_path / "x/run.jsonl")
    put(tmp_path / "x/data.jsonl", b'{"text":"a data set"}\n')
    put(tmp_path / "x/report.html", HEADER)
    assert labels(tmp_path / "x") == ["x/run.jsonl"]
    assert reasons(tmp_path / "x") == {}


def test_ten_thousand_files_of_other_kinds_are_passed_over(tmp_path: Path) -> None:
    for number in range(10_000):
        (tmp_path / f"{number}.{'jsonl' if number % 2 else 'txt'}").touch()
    put(tmp_path / "run.jsonl")
    assert labels(tmp_path) == [f"{tmp_path.name}/run.jsonl"]


def test_a_file_that_is_given_or_called_a_run_is_told_of_when_it_is_none(tmp_path: Path) -> None:
    put(tmp_path / "x/a/run.jsonl", b"")
    notes = put(tmp_path / "notes.jsonl", b"")
    assert reasons(tmp_path / "x", notes) == {
        "x/a/run.jsonl": "not-a-run",
        f"{tmp_path.name}/notes.jsonl": "not-a-run",
    }


def test_the_same_bytes_are_one_run_and_its_copies_are_named(tmp_path: Path) -> None:
    for name in ("c", "a", "b"):
        put(tmp_path / f"x/{name}/run.jsonl")
    found = gather([tmp_path / "x"])
    assert [file.label for file in found.files] == ["x/a/run.jsonl"]
    assert found.copies == {found.files[0].sha256: ("x/b/run.jsonl", "x/c/run.jsonl")}


def test_an_earlier_state_of_a_run_is_a_copy_of_it(tmp_path: Path) -> None:
    put(tmp_path / "x/a/run.jsonl", HEADER + b"1\n")
    put(tmp_path / "x/b/run.jsonl", HEADER + b"1\n2\n3\n")
    put(tmp_path / "x/c/run.jsonl", HEADER + b"1\n2\n")
    put(tmp_path / "x/d/run.jsonl", HEADER + b"1\n2\n3\n{cut")
    found = gather([tmp_path / "x"])
    assert [file.label for file in found.files] == ["x/b/run.jsonl"]
    assert list(found.copies.values()) == [("x/a/run.jsonl", "x/c/run.jsonl", "x/d/run.jsonl")]


def test_runs_that_merely_share_a_header_are_runs_of_their_own(tmp_path: Path) -> None:
    put(tmp_path / "x/a/run.jsonl", HEADER + b"1\n")
    put(tmp_path / "x/b/run.jsonl", HEADER + b"2\n2\n")
    put(tmp_path / "x/c/run.jsonl", HEADER + b"2\n3\n")
    assert labels(tmp_path / "x") == ["x/a/run.jsonl", "x/b/run.jsonl", "x/c/run.jsonl"]


def test_links_are_not_followed_and_said(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere/run.jsonl")
    (tmp_path / "x/b").mkdir(parents=True)
    (tmp_path / "x/a").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "x/b/run.jsonl").symlink_to(tmp_path / "elsewhere/run.jsonl")
    (tmp_path / "x/circle").symlink_to(tmp_path / "x")
    assert labels(tmp_path / "x") == []
    assert reasons(tmp_path / "x") == dict.fromkeys(("x/a", "x/b/run.jsonl", "x/circle"), "link-not-followed")


def test_a_link_that_is_given_by_name_is_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere/run.jsonl")
    (tmp_path / "x").symlink_to(tmp_path / "elsewhere")
    assert labels(tmp_path / "x") == ["x/run.jsonl"]


def test_a_pipe_in_the_place_of_a_run_is_not_waited_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "run.jsonl")
    assert reasons(tmp_path) == {f"{tmp_path.name}/run.jsonl": "unreadable-run"}


def test_a_folder_that_is_called_a_run_is_looked_into(tmp_path: Path) -> None:
    put(tmp_path / "x/run.jsonl/run.jsonl")
    assert labels(tmp_path / "x") == ["x/run.jsonl/run.jsonl"]


def test_a_file_beyond_bounds_is_left_out_with_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with put(tmp_path / "x/run.jsonl").open("r+b") as file:
        file.truncate(gathering.MAX_RUN_BYTES + 1)
    [left_out] = gather([tmp_path / "x"]).left_out
    assert left_out.slug == "too-large-run"
    assert left_out.reason.startswith("has 67,108,865 bytes, over 67,108,864;")


def test_a_file_of_more_than_a_million_lines_is_left_out(tmp_path: Path) -> None:
    put(tmp_path / "x/run.jsonl", HEADER + b'{"started":"k"}\n' * 1_000_000)
    [left_out] = gather([tmp_path / "x"]).left_out
    assert (left_out.slug, left_out.reason) == ("too-large-run", "has 1,000,001 lines, over 1,000,000")


def test_a_folder_without_end_is_left(tmp_path: Path) -> None:
    deep = tmp_path.joinpath("x", *["d"] * 40)
    put(deep / "run.jsonl")
    assert list(reasons(tmp_path / "x").values()) == ["too-large-run"]


@pytest.mark.parametrize(
    "name",
    [
        "a\u202egnp.exe",
        "<script>alert(1)</script>",
        "new\nline",
        "run\u200b\ufeff",
        b"\xff\xfe".decode("utf-8", "surrogateescape"),
    ],
)
def test_a_label_of_any_name_can_be_printed_and_stored(tmp_path: Path, name: str) -> None:
    put(tmp_path / "x" / name.replace("/", "_") / "run.jsonl")
    [label] = labels(tmp_path / "x")
    assert label.isprintable()
    label.encode("utf-8")


def test_a_path_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"give run folders, folders of them, or run.jsonl files \[no-such-run\]"):
        gather([tmp_path / "gone"])
    with pytest.raises(UsageError, match=r"\[no-such-run\]"):
        gather([Path("nul\0byte")])
