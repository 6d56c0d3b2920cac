"""Faults of the kinds that were reported are found, by their class, and their twins give no alarm."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.detection.audited import audited, audited_at_once
from tests.detection.registry import BY_NAME, INVENTED, REPORTED, UNSEEN
from tests.detection.table import DOCUMENT, report_of

#: One of each kind: a stride, a size, a dtype, a phase, an error, a path, random numbers, free signs, a false alarm, a
#: part, a view, a write beside one.
FAST = ("A15", "A05", "A23b", "A09", "B03", "E05", "dropout-unscaled", "qr-signs", "A06", "tile-of-a-product",
        "view-is-a-copy", "writes-the-gaps")  # fmt: skip


@pytest.fixture(scope="module")
def reports(checkout: Path) -> set[str]:
    path = checkout.parent / "shared" / "knowledge" / "field_reports.json"
    if not path.is_file():
        pytest.skip("the field reports are not here: shared/knowledge/field_reports.json beside the repository")
    return {entry["id"] for entry in json.loads(path.read_text())["entries"]}


def test_every_report_has_a_fault_or_a_reason(reports: set[str]) -> None:
    assert {report_of(fault.name) for fault in REPORTED} | {report.name for report in UNSEEN} == reports
    assert len(reports) == 52


def test_the_page_has_a_row_for_each_fault_and_each_report() -> None:
    rows = re.findall(r"^\| ([\w-]+) \|", DOCUMENT.read_text(), re.MULTILINE)
    heads = {"report", "fault"}
    expected = [*(fault.name for fault in (*REPORTED, *INVENTED)), *(report.name for report in UNSEEN)]
    assert sorted(row for row in rows if row not in heads) == sorted(expected)


def test_the_page_names_what_escapes() -> None:
    text = DOCUMENT.read_text()
    escaped = set(re.findall(r"^- ([\w-]+): ", text, re.MULTILINE))
    assert escaped == {fault.name for fault in (*REPORTED, *INVENTED) if fault.missed}


def test_one_fault_of_each_kind_is_found_and_its_twin_is_not(simulated_device: None, tmp_path: Path) -> None:
    found = audited_at_once([BY_NAME[name] for name in FAST], tmp_path)
    said = {one.fault.name: (one.program.status, one.twin.status) for one in found}
    assert said == {
        "A15": ("divergent", "supported"),
        "A05": ("divergent", "supported"),
        "A23b": ("divergent", "supported"),
        "A09": ("divergent", "supported"),
        "B03": ("unsupported", "supported"),
        "E05": ("falling_back", "supported"),
        "dropout-unscaled": ("divergent", "supported"),
        "qr-signs": ("supported", "supported"),
        "A06": ("supported", "supported"),
        "tile-of-a-product": ("divergent", "supported"),
        "view-is-a-copy": ("divergent", "supported"),
        "writes-the-gaps": ("divergent", "supported"),
    }


@pytest.mark.evidence
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("part", ["reported", "invented"])
def test_all_faults_are_judged_as_they_should_be(simulated_device: None, tmp_path: Path, part: str) -> None:
    faults = REPORTED if part == "reported" else INVENTED
    wrong = {one.fault.name: one for one in audited(faults, tmp_path) if one.right == bool(one.fault.missed)}
    assert wrong == {}
