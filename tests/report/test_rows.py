"""The rows under every report: joined, rolled up, ordered, and named safely."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.report.rows import case_rows, coverage_of, op_rows, safe_name, status_counts
from audit.report.sections.coverage import coverage_bars
from audit.report.sections.dearest_ops import chart_bars
from audit.report.sections.operators import sort_keys
from audit.report.template_words import headline_parts, web_link
from audit.report.text import amount_text
from audit.run_records import Run
from audit.schema import Status
from audit.verdicts import Coverage, Finding, Judgement, Verdict


def verdict(
    key: str, status: Status, op: str = "aten::mm.default", us: float | None = None, n_calls: int = 1
) -> Verdict:
    total_us = None if us is None else us * n_calls
    return Verdict(key, op, status, n_calls, "forward", (), (), "f32[2, 2]", (), us, total_us=total_us)


def judged(judgement: Judgement, *verdicts: Verdict, coverage: tuple[Coverage, ...] = ()) -> Judgement:
    run = Run(judgement.run.header, (), {})
    return replace(judgement, run=run, verdicts=verdicts, coverage=coverage)


@pytest.fixture
def empty(make_judgement: Callable[..., Judgement]) -> Judgement:
    return make_judgement(0)


def test_cases_come_worst_first_then_by_time(empty: Judgement) -> None:
    judgement = judged(
        empty,
        verdict("a", "supported", us=900),
        verdict("b", "inconclusive"),
        verdict("c", "slow", us=5),
        verdict("d", "slow", us=2, n_calls=10),
        verdict("e", "unsupported"),
    )
    assert [row.verdict.key for row in case_rows(judgement)] == ["e", "d", "c", "b", "a"]


def test_an_op_takes_the_worst_status_of_its_cases_and_sums_their_cost(empty: Judgement) -> None:
    judgement = judged(
        empty,
        verdict("a", "supported", us=3.0, n_calls=2),
        verdict("b", "divergent", us=1.0, n_calls=5),
        verdict("c", "inconclusive"),
        verdict("d", "supported", "aten::add.Tensor"),
    )
    mm, add = op_rows(case_rows(judgement))
    assert (mm.op, mm.status, mm.n_calls, mm.total_us) == ("aten::mm.default", "divergent", 8, 11.0)
    assert mm.n_by_status == (("divergent", 1), ("inconclusive", 1), ("supported", 1))
    assert mm.us_by_status == (("divergent", 5.0), ("inconclusive", 0.0), ("supported", 6.0))
    assert (add.status, add.total_us) == ("supported", None)


def test_an_op_with_an_unknown_case_is_not_called_supported(empty: Judgement) -> None:
    [op] = op_rows(case_rows(judged(empty, verdict("a", "supported"), verdict("b", "inconclusive"))))
    assert op.status == "inconclusive"


def test_notes_carry_no_weight_and_findings_come_worst_first(empty: Judgement) -> None:
    findings = (
        Finding("FBK301", "supported", "a note"),
        Finding("SPD401", "slow", "s"),
        Finding("NUM201", "divergent", "d"),
    )
    [row] = case_rows(judged(empty, replace(verdict("a", "divergent"), findings=findings)))
    assert [f.code for f in row.findings] == ["NUM201", "SPD401"]
    assert [f.code for f in row.notes] == ["FBK301"]


def test_a_verdict_without_its_case_still_has_a_row_but_no_script(empty: Judgement) -> None:
    [row] = case_rows(judged(empty, verdict("a", "unsupported")))
    assert (row.case, row.dtypes, row.worst_ratio, row.has_repro) == (None, (), None, False)


@pytest.mark.parametrize(
    "key", ["../../x", "a/b", "a\\b", "", ".hidden", "-x", "a" * 200, "a b", 'a"b', "\u202e", "con\n"]
)
def test_a_key_that_is_no_plain_name_becomes_a_digest(key: str) -> None:
    name = safe_name(key)
    assert name.startswith("case-")
    assert len(name) == len("case-") + 12


def test_a_plain_key_names_its_own_file() -> None:
    assert safe_name("_foreach_add_-0123456789ab") == "_foreach_add_-0123456789ab"


def test_counts_hold_every_status_in_reading_order(empty: Judgement) -> None:
    counts = status_counts(judged(empty, verdict("a", "slow"), verdict("b", "slow")))
    assert list(counts.items()) == [
        ("unsupported", 0), ("divergent", 0), ("falling_back", 0), ("slow", 2), ("inconclusive", 0), ("supported", 0),
    ]  # fmt: skip


def test_a_coverage_of_nothing_is_no_coverage(empty: Judgement) -> None:
    judgement = judged(empty, coverage=(Coverage("cases", 0, {}), Coverage("calls", 2, {"supported": 2})))
    assert coverage_of(judgement, "cases") is None
    assert coverage_of(judgement, "calls") == Coverage("calls", 2, {"supported": 2})


# --- bars ----------------------------------------------------------------------------------------------------------


def test_a_coverage_bar_is_filled_and_keeps_one_case_of_a_thousand_visible(empty: Judgement) -> None:
    coverage = (Coverage("cases", 1000, {"supported": 999, "divergent": 1}),)
    [bar] = coverage_bars(judged(empty, coverage=coverage))
    assert [(s.status, s.text) for s in bar.segments] == [("supported", "999"), ("divergent", "1")]
    assert bar.segments[1].width > 0.6
    assert sum(s.width for s in bar.segments) == pytest.approx(100, abs=0.01)
    assert bar.segments[1].start == pytest.approx(bar.segments[0].width, abs=0.01)


def test_the_chart_shows_the_costliest_ops_on_one_scale(empty: Judgement) -> None:
    verdicts = [verdict(f"k{i}", "supported", f"aten::op{i}.default", us=float(i)) for i in range(1, 21)]
    bars = chart_bars(op_rows(case_rows(judged(empty, *verdicts))))
    assert [bar.label for bar in bars] == [f"op{i}" for i in range(20, 8, -1)]
    assert bars[0].segments[0].width == 100
    assert bars[-1].segments[0].width == 45
    assert bars[0].amount_text == "20.0 µs"


def test_without_times_the_chart_counts_calls(empty: Judgement) -> None:
    rows = case_rows(
        judged(empty, verdict("a", "divergent", n_calls=3), verdict("b", "supported", "aten::add.Tensor", n_calls=12))
    )
    assert [(bar.label, bar.amount_text) for bar in chart_bars(op_rows(rows))] == [("add.Tensor", "12"), ("mm", "3")]


def test_the_headline_is_set_in_two_sizes_where_it_was_not_measured() -> None:
    assert headline_parts("not measured on AMD: nothing ran") == ("Not measured on AMD:", "Nothing ran")
    assert headline_parts("all is well") == ("", "All is well")


@pytest.mark.parametrize(
    "link", ["javascript:alert(1)", "//host/x", "file:///etc/passwd", "https://a b", "https://a\u202eb", ""]
)
def test_only_plain_web_addresses_become_links(link: str) -> None:
    assert web_link(link) == ""
    assert web_link("https://github.com/ROCm/TheRock/issues/1") == "https://github.com/ROCm/TheRock/issues/1"


@pytest.mark.parametrize(("ratio", "key"), [(412.5, "412.5"), (float("inf"), "1e999"), (float("nan"), ""), (None, "")])
def test_an_infinite_error_sorts_as_the_largest(empty: Judgement, ratio: float | None, key: str) -> None:
    [row] = case_rows(judged(empty, verdict("a", "divergent")))
    assert sort_keys(replace(row, worst_ratio=ratio))["data-ratio"] == key


def test_amounts_carry_their_unit() -> None:
    assert (amount_text("device_time", 1500.0), amount_text("calls", 1500.0)) == ("1.50 ms", "1,500")
