"""The data base of a site: what is kept, what goes, and that anything damaged is made again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from audit.dashboard.database import Database
from audit.dashboard.digest import Digest, digest
from audit.errors import UnfinishedError
from audit.rules.judge import judge
from audit.store import read_run
from tests.dashboard.made_runs import H200, healthy_keys, write_run


def made(folder: Path, **options: object) -> Digest:
    return digest(judge(read_run(write_run(folder, **options))))  # type: ignore[arg-type]


def rows(database: Database) -> dict[str, int]:
    tables = ("run", "stack", "model", "op", "signature", "seen", "text", "finding")
    return {table: database.connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in tables}


def test_what_is_kept_is_there_when_it_is_opened_again_by_the_same_rules(tmp_path: Path) -> None:
    path = tmp_path / "site.sqlite"
    database = Database.open(path, "rules 1")
    database.add("a" * 64, "h", made(tmp_path / "a"))
    database.commit()
    database.close()
    assert Database.open(path, "rules 1").known() == {"a" * 64}
    assert Database.open(path, "rules 2").known() == set()


def test_what_was_not_committed_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "site.sqlite"
    database = Database.open(path, "rules")
    database.add("a" * 64, "h", made(tmp_path / "a"))
    database.close()
    assert Database.open(path, "rules").known() == set()


@pytest.mark.parametrize("content", [b"", b"no data base", b"SQLite format 3\0" + b"\xff" * 5000])
def test_a_damaged_data_base_is_made_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "site.sqlite"
    path.write_bytes(content)
    assert Database.open(path, "rules").known() == set()


def test_a_data_base_of_another_form_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "site.sqlite"
    Database.open(path, "rules").close()
    with sqlite3.connect(path) as base:
        base.execute("UPDATE fact SET value = '0' WHERE name = 'form'")
    base.close()
    assert rows(Database.open(path, "rules"))["run"] == 0


def test_one_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnfinishedError, match=r"choose another folder with --cache \[unusable-cache\]"):
        Database.open(tmp_path / "no folder" / "site.sqlite", "rules")


def test_a_run_that_goes_takes_with_it_what_only_it_had(tmp_path: Path) -> None:
    keys = healthy_keys(6)
    database = Database.open(None, "rules")
    database.add("a" * 64, "h", made(tmp_path / "a", keys=keys[:2]))
    before = rows(database)
    database.add("b" * 64, "i", made(tmp_path / "b", keys=keys, device=H200, source="other.py", raising=keys[:1]))
    assert rows(database) == {
        "run": 2, "stack": 2, "model": 2, "op": 5, "signature": 6, "seen": 8, "text": before["text"] + 2, "finding": 1
    }  # fmt: skip
    database.remove(["b" * 64, "c" * 64])
    assert rows(database) == before


def test_ops_that_were_made_to_share_a_short_address_get_long_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("audit.dashboard.database.op_slug", lambda op: "the-same")
    database = Database.open(None, "rules")
    database.add("a" * 64, "h", made(tmp_path / "a"))
    slugs = [slug for (slug,) in database.connection.execute("SELECT slug FROM op ORDER BY LENGTH(slug)")]
    assert (len(slugs), len(set(slugs)), slugs[0]) == (5, 5, "the-same")
    assert all(len(slug) > 64 for slug in slugs[1:])
