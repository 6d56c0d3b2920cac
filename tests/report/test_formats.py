"""CSV, Markdown and JUnit, read back by readers that are not ours."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from collections.abc import Callable

import pytest

from audit.report import junit, markdown, spreadsheet
from audit.schema import NotAudited
from audit.verdicts import Finding, Judgement

junitparser = pytest.importorskip("junitparser", reason="the JUnit reporter writes through it")


def lines_of(judgement: Judgement) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(spreadsheet.render(judgement))))


def test_csv_has_a_line_per_case_with_its_evidence_level(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement(60)
    lines = lines_of(judgement)
    assert len(lines) == 60
    assert {line["evidence"] for line in lines} == {"simulated"}
    verdict = next(v for v in judgement.verdicts if v.status == "divergent")
    line = next(line for line in lines if line["key"] == verdict.key)
    assert (line["op"], line["status"], line["codes"]) == (verdict.op, "divergent", "NUM201")
    assert float(line["device_us"]) == verdict.device_us
    assert line["error_ratio"] == "412.5"
    assert line["modules"].split("\n") == list(verdict.modules)


def test_csv_cells_cannot_be_formulas(hostile_judgement: Judgement) -> None:
    cells = [cell for line in lines_of(hostile_judgement) for cell in line.values()]
    assert '\'=HYPERLINK("http://evil")' in cells
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))]


def test_junit_fails_broken_cases_errs_on_inconclusive_ones_and_passes_the_rest(
    make_judgement: Callable[..., Judgement],
) -> None:
    judgement = make_judgement(60)
    document = junitparser.JUnitXml.fromstring(junit.render(judgement).encode())
    statuses = [v.status for v in judgement.verdicts]
    cases = [case for suite in document for case in suite]
    assert len(cases) == 60
    kinds = [type(result).__name__ for case in cases for result in case.result]
    assert kinds.count("Failure") == statuses.count("unsupported") + statuses.count("divergent") == 12
    assert kinds.count("Error") == statuses.count("inconclusive") == 6
    told = [case.system_out for case in cases if case.system_out]
    assert len(told) == statuses.count("slow") + statuses.count("falling_back")
    properties = {prop.name: prop.value for prop in next(iter(document)).properties()}
    assert properties["evidence_text"] == "Simulated · not measured on AMD"


def test_junit_of_hostile_names_is_well_formed(hostile_judgement: Judgement) -> None:
    document = junitparser.JUnitXml.fromstring(junit.render(hostile_judgement).encode())
    assert sum(1 for suite in document for _ in suite) == 60


def test_markdown_says_what_was_found_and_that_it_was_not_measured(make_judgement: Callable[..., Judgement]) -> None:
    page = markdown.render(make_judgement(60))
    assert page.startswith("# Not measured on AMD: 18 of 60 cases need attention\n\n> **Simulated")
    assert "| ✗ unsupported | 3 | 6 | 6 | 0 |" in page
    assert "%" not in page  # a run that is not AMD's gives no share of what works
    assert page.count("\n| ≠ divergent | `") == 6


def test_markdown_of_a_measured_run_gives_shares_with_their_denominator(
    make_judgement: Callable[..., Judgement],
) -> None:
    page = markdown.render(make_judgement(60, backend="hip"))
    assert "cases (of 60)" in page
    assert "| 36 (60.0 %) |" in page
    assert "| ? inconclusive | 2 (12.5 %) | 6 (10.0 %) |" in page


def test_markdown_of_a_large_run_fits_a_github_comment(make_judgement: Callable[..., Judgement]) -> None:
    page = markdown.render(make_judgement(2000))
    assert len(page) < 65_536
    assert re.search(r"and \d+ more, in report.html", page)


def test_markdown_fits_a_comment_whatever_has_to_be_escaped(make_judgement: Callable[..., Judgement]) -> None:
    bad = "<@*|" * 500
    judgement = make_judgement(600)
    verdicts = tuple(
        dataclasses.replace(one, op=f"aten::{bad}", findings=tuple(_with(finding, bad) for finding in one.findings))
        for one in judgement.verdicts
    )
    skipped = tuple(NotAudited(f"{bad}{number}", bad) for number in range(300))
    header = dataclasses.replace(judgement.run.header, not_audited=skipped)
    run = dataclasses.replace(judgement.run, header=header)
    page = markdown.render(dataclasses.replace(judgement, verdicts=verdicts, run=run, headline=bad))
    assert 50_000 < len(page.encode()) <= markdown.MAX_BYTES
    assert len(re.findall(r"and \d+ more, in report.html", page)) == 2


def _with(finding: Finding, message: str) -> Finding:
    return dataclasses.replace(finding, message=message)


def test_a_page_that_is_too_long_all_the_same_is_cut_between_paragraphs() -> None:
    page = markdown._bounded("\n\n".join(["é" * 900] * 60))
    assert len(page.encode()) <= markdown.MAX_BYTES
    assert page.endswith("é" * 900 + "\n\nThe rest does not fit: it is in report.html.\n")


def test_markdown_from_hostile_names_holds_no_markup(hostile_judgement: Judgement) -> None:
    page = markdown.render(hostile_judgement)
    outside_code = re.sub(r"(`+)[^\n]*?[^`]\1(?!`)", "", page)
    assert "<script" not in outside_code
    assert "\x1b" not in page
    assert "\u202e" not in page
    for line in page.splitlines():
        if line.startswith("| ≠"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 6  # five cells: none was split


@pytest.mark.parametrize("value", ["a`b", "``", "`", "a|b", "x``y`"])
def test_a_code_span_holds_any_text(value: str) -> None:
    span = markdown.code_span(value)
    fence = re.match(r"`+", span)
    assert fence is not None
    inner = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inner)
    assert inner.strip().replace("\\|", "|") == value


def test_the_csv_is_a_data_frame_with_a_row_per_case(make_judgement: Callable[..., Judgement]) -> None:
    judgement = make_judgement()
    frame = spreadsheet.frame(judgement)
    assert list(frame.columns) == list(spreadsheet.COLUMNS)
    assert sorted(frame["key"]) == sorted(verdict.key for verdict in judgement.verdicts)
    assert frame["calls"].sum() == sum(verdict.n_calls for verdict in judgement.verdicts)
