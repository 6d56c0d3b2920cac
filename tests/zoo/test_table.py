"""docs/zoo.md: one row for each program, and what a row says."""

from __future__ import annotations

from pathlib import Path

from audit.schema import STATUSES
from tests.zoo.table import Row, listed, programs


def test_the_page_has_a_row_for_every_program_and_for_no_other(checkout: Path) -> None:
    page = checkout.joinpath("docs", "zoo.md").read_text(encoding="utf-8")
    assert listed(page) == [name for name, _ in programs()]


def test_a_row_gives_the_conclusive_share_of_what_was_replayed_and_names_findings() -> None:
    by_status = {**dict.fromkeys(STATUSES, 0), "supported": 190, "falling_back": 9, "inconclusive": 1}
    row = Row("toy", "a toy", 12, 213, 40, 3, 10, by_status, 1_500_000)
    assert row.text() == (
        "| `toy` | a toy | 12 | 213 | 40 | 3 | 10 | 99.5 % | 9 falling back, 1 inconclusive | 1.50 MB |"
    )
