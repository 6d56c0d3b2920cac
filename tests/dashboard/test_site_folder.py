"""The folder of a site: files whole, unchanged ones untouched, stale ones gone; interruptions, hostile folders."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.dashboard.site_file import SiteFile
from audit.dashboard.site_folder import JOURNAL, MANIFEST, SiteFolder, Written, check_folder
from audit.errors import UnfinishedError, UsageError


def file(path: str, text: str, depends: str | None = None) -> SiteFile:
    return SiteFile(path, text if depends is None else depends, lambda: text)


def never(path: str, depends: str) -> SiteFile:
    def make() -> str:
        raise AssertionError(f"{path} was made again")

    return SiteFile(path, depends, make)


def write(folder: Path, *files: SiteFile, maker: str = "1") -> Written:
    return SiteFolder(folder, maker).write(files)


def names(folder: Path) -> list[str]:
    found = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    return sorted(name for name in found if name != MANIFEST)


def test_files_are_written_in_their_folders_as_text_bytes_or_pieces(tmp_path: Path) -> None:
    pieces = SiteFile("downloads/x.csv", "", lambda: iter(["a", "ä\n"]))
    packed = SiteFile("runs/a.json.gz", "", lambda: b"\x1f\x8b")
    assert write(tmp_path / "site", file("index.html", "hello"), pieces, packed) == Written(3, 3, 0, 11)
    assert (tmp_path / "site/index.html").read_text() == "hello"
    assert (tmp_path / "site/downloads/x.csv").read_text() == "aä\n"
    assert (tmp_path / "site/runs/a.json.gz").read_bytes() == b"\x1f\x8b"


def test_a_file_that_depends_on_the_same_is_not_made_again(tmp_path: Path) -> None:
    write(tmp_path, file("index.html", "1"), file("ops/a.html", "2"))
    assert write(tmp_path, never("index.html", "1"), file("ops/a.html", "3")).n_written == 1
    assert (tmp_path / "ops/a.html").read_text() == "3"


def test_another_maker_makes_all_again_and_keeps_the_bytes_that_come_out_the_same(tmp_path: Path) -> None:
    write(tmp_path, file("a.html", "1"), file("b.html", "2"))
    before = (tmp_path / "a.html").stat().st_ino
    assert write(tmp_path, file("a.html", "1"), file("b.html", "3", "2"), maker="2").n_written == 1
    assert (tmp_path / "a.html").stat().st_ino == before


def test_a_file_that_was_removed_or_cut_is_made_again(tmp_path: Path) -> None:
    write(tmp_path, file("a.html", "long"), file("b.html", "long"))
    (tmp_path / "a.html").unlink()
    (tmp_path / "b.html").write_text("lo")
    assert write(tmp_path, file("a.html", "long"), file("b.html", "long")).n_written == 2


def test_what_is_no_longer_part_goes_and_what_is_not_ours_stays(tmp_path: Path) -> None:
    write(tmp_path, file("index.html", "1"), file("ops/a.html", "2"), file("ops/b.html", "3"), file("runs/c.html", "4"))
    (tmp_path / "CNAME").write_text("example.org")
    (tmp_path / "ops/notes.txt").write_text("mine")
    assert write(tmp_path, file("index.html", "1")).n_removed == 3
    assert names(tmp_path) == ["CNAME", "index.html", "ops/notes.txt"]
    assert not (tmp_path / "runs").exists()


def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for site in ("one", "other"):
        write(tmp_path / site, file("index.html", "1"), file("ops/a.html", "2"))
    assert (tmp_path / "one" / MANIFEST).read_bytes() == (tmp_path / "other" / MANIFEST).read_bytes()


def interrupted() -> Iterator[SiteFile]:
    yield file("a.html", "new a")
    yield file("new.html", "new")
    raise KeyboardInterrupt


def test_an_interrupted_build_leaves_whole_files_and_the_next_one_knows_them_all(tmp_path: Path) -> None:
    write(tmp_path, file("a.html", "old a"), file("b.html", "old b"))
    with pytest.raises(KeyboardInterrupt):
        SiteFolder(tmp_path, "1").write(interrupted())
    assert (tmp_path / "a.html").read_text() == "new a"
    assert (tmp_path / "b.html").read_text() == "old b"
    # The runs are what they were: what the interrupted build wrote is written over, and what it added goes.
    assert write(tmp_path, file("a.html", "old a"), file("b.html", "old b")) == Written(2, 1, 1, 10)
    assert names(tmp_path) == ["a.html", "b.html"]
    assert (tmp_path / "a.html").read_text() == "old a"


def test_a_file_that_cannot_be_made_leaves_the_old_one(tmp_path: Path) -> None:
    def half() -> Iterator[str]:
        yield "half"
        raise OSError(28, "No space left on device")

    write(tmp_path, file("a.html", "old"))
    with pytest.raises(UnfinishedError, match=r"No space left on device; free space .* \[unwritable-output\]"):
        write(tmp_path, SiteFile("a.html", "new", half))
    assert names(tmp_path) == ["a.html", JOURNAL]
    assert (tmp_path / "a.html").read_text() == "old"


# --- folders of strangers -------------------------------------------------------------------------------------------


def test_a_folder_that_holds_something_else_is_not_touched_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(UsageError, match=r"no site of rocm-audit; .* --force .* \[exists\]"):
        check_folder(tmp_path, force=False)
    check_folder(tmp_path, force=True)
    write(tmp_path, file("index.html", "1"))
    write(tmp_path, file("other.html", "1"))
    assert names(tmp_path) == ["other.html", "thesis.tex"]


def test_an_empty_folder_a_site_and_one_that_is_not_there_are_fine(tmp_path: Path) -> None:
    check_folder(tmp_path / "new", force=False)
    check_folder(tmp_path, force=False)
    write(tmp_path, file("index.html", "1"))
    check_folder(tmp_path, force=False)


def test_a_file_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "site").write_text("")
    with pytest.raises(UsageError, match=r"is there and no folder; choose another with -o \[exists\]"):
        check_folder(tmp_path / "site", force=True)


@pytest.mark.parametrize(
    "name", ["../victim.txt", "/victim.txt", "ops/../../victim.txt", "ops//x", "UPPER", ".hidden", ""]
)
def test_a_manifest_from_elsewhere_cannot_have_other_files_removed(tmp_path: Path, name: str) -> None:
    site = tmp_path / "site"
    write(site, file("index.html", "1"))
    (tmp_path / "victim.txt").write_text("mine")
    content = json.loads((site / MANIFEST).read_text())
    content["files"] |= {name: ["", 4, ""], str(tmp_path / "victim.txt"): ["", 4, ""]}
    (site / MANIFEST).write_text(json.dumps(content))
    (site / JOURNAL).write_text(f"{name}\n../victim.txt\n{tmp_path}/victim.txt\n")
    write(site, file("index.html", "1"))
    assert (tmp_path / "victim.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format_version": 1, "maker": 1, "files": {"a.html": 3}}', "[" * 9999]
)
def test_a_manifest_that_makes_no_sense_has_all_written_again(tmp_path: Path, text: str) -> None:
    write(tmp_path, file("a.html", "1"))
    (tmp_path / MANIFEST).write_text(text)
    assert write(tmp_path, file("a.html", "1")) == Written(1, 1, 0, 1)


def test_links_inside_a_site_lead_nothing_out_of_it(tmp_path: Path) -> None:
    site, outside = tmp_path / "site", tmp_path / "outside"
    outside.mkdir()
    (outside / "a.html").write_text("mine")
    write(site, file("ops/a.html", "1"), file("b.html", "2"))
    (site / "ops/a.html").unlink()
    (site / "ops").rmdir()
    (site / "ops").symlink_to(outside)
    (site / "b.html").unlink()
    (site / "b.html").symlink_to(outside / "a.html")
    write(site, file("b.html", "2"))
    assert (outside / "a.html").read_text() == "mine"
    assert not (site / "b.html").is_symlink()
    with pytest.raises(UnfinishedError, match=r"\[unwritable-output\]"):
        write(site, file("ops/a.html", "1"))
    assert (outside / "a.html").read_text() == "mine"
