"""The data files: whole, sourced, and free of what does not belong in them."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from audit.knowledge.tables import document, globs, matches, rows

TABLES = sorted(entry.name for entry in files("audit.knowledge").iterdir() if entry.name.endswith(".csv"))


@pytest.mark.parametrize("name", TABLES)
def test_every_row_of_every_table_has_a_source(name):
    table = rows(name)
    assert table
    assert all(row["source"].strip() for row in table)


@pytest.mark.parametrize("name", [*TABLES, "known_behaviours.json"])
def test_sources_are_public_and_name_no_place_or_person_of_ours(name):
    text = files("audit.knowledge").joinpath(name).read_text(encoding="utf-8")
    absolute_path, address = r"(?:^|[\s(;\"'])/[a-z]{2,}/", r"[\w.]+@[\w-]+\.(?:com|org|net|edu)\b"
    found = re.findall(f"{absolute_path}|{address}", text, re.MULTILINE)
    assert found == []


def test_globs_are_case_sensitive_and_fit_the_whole_name():
    patterns = globs("aten::mm.* | aten::_int_mm*")
    assert patterns == ("aten::mm.*", "aten::_int_mm*")
    assert matches("aten::mm.default", patterns)
    assert not matches("aten::mm_x.default", patterns)
    assert not matches("ATEN::mm.default", patterns)
    assert globs("") == ()


def test_known_behaviours_link_to_the_web():
    entries = document("known_behaviours.json")["entries"]
    assert all(entry["link"].startswith("https://") for entry in entries)
    assert len({entry["id"] for entry in entries}) == len(entries)
