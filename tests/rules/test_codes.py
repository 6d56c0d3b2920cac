"""Codes, code and docs say the same, both ways."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from audit.knowledge.tables import rows
from audit.rules.codes import CODES
from audit.rules.thresholds import DEFAULT
from audit.schema import EVIDENCE_BY_BACKEND, STATUSES

CODE = re.compile(r"\b(?:SUP1|NUM2|FBK3|SPD4|INC9)\d\d\b")


def _sources() -> dict[str, str]:
    folder = files("audit.rules")
    return {entry.name: entry.read_text() for entry in folder.iterdir() if entry.name.endswith(".py")}


@pytest.fixture(scope="module")
def rules_page(checkout):
    return (checkout / "docs/rules.md").read_text()


def test_every_code_has_its_section_under_its_title_and_no_other_is_there(rules_page):
    headings = re.findall(r"^## (\w{3}\d{3}) (.+)$", rules_page, re.MULTILINE)
    assert len(headings) == len(CODES)
    assert dict(headings) == dict(CODES)


def test_every_section_says_what_to_do(rules_page):
    sections = re.split(r"^## ", rules_page, flags=re.MULTILINE)[1:]
    for section in sections:
        if CODE.match(section):
            assert "*What" in section.replace("\n", " "), section.splitlines()[0]


def test_codes_used_by_rules_are_exactly_those_in_the_table():
    used = {
        code for name, text in _sources().items() if name != "codes.py" for code in re.findall(r'"(\w{3}\d{3})"', text)
    }
    used |= {row["code"] for row in rows("predictions.csv")}
    assert used == set(CODES)


def test_a_code_belongs_to_one_rule_file():
    """Two files that give one code would give it two meanings."""
    owners: dict[str, set[str]] = {}
    for name, text in _sources().items():
        if name != "codes.py":
            for code in re.findall(r'(?:Finding|_finding|_predicted)\(\s*"(\w{3}\d{3})"', text):
                owners.setdefault(code, set()).add(name)
    assert {code: names for code, names in owners.items() if len(names) > 1} == {}


def test_titles_are_unique():
    assert len(set(CODES.values())) == len(CODES)


def test_every_threshold_stands_in_the_docs_with_its_value(rules_page):
    table = dict(re.findall(r"^\| `(\w+)` \| (\S+) \|", rules_page, re.MULTILINE))
    assert table == {name: value for name, value, _ in DEFAULT.rows()}


def test_the_statuses_page_explains_each_status_and_evidence_level(checkout):
    page = (checkout / "docs/statuses.md").read_text()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == list(STATUSES)
    assert set(re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)) == set(EVIDENCE_BY_BACKEND.values())
