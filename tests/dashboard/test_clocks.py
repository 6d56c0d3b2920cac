"""Dates that can be and cannot be, versions in order, and runs in order where clocks are wrong."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audit.dashboard.clocks import Dated, in_order, read_clock, version_key

NOW = datetime.datetime(2026, 12, 1, 12, tzinfo=datetime.timezone.utc)


@pytest.mark.parametrize(
    ("created", "clock"),
    [
        ("2026-11-20T12:00:00+00:00", "ok"),
        ("2026-11-20T12:00:00Z", "ok"),
        ("2026-11-20T12:00:00", "ok"),
        ("2026-12-02T11:00:00+00:00", "ok"),  # within a day: another zone, a clock that is fast
        ("2026-12-02T13:00:00+00:00", "future"),
        ("9999-12-31T23:59:59-23:59", "unread"),  # beyond the last day that Python has
        ("1970-01-01T00:00:00+00:00", "past"),
        ("2025-12-31T23:59:59+00:00", "past"),
        ("", "unread"),
        ("yesterday", "unread"),
    ],
)
def test_a_date_can_be_or_it_is_told_why_not(created: str, clock: str) -> None:
    assert read_clock(created, NOW)[0] == clock


def test_versions_are_ordered_by_their_numbers() -> None:
    ordered = [
        "2.9.1", "2.10.0", "2.13.0rc1", "2.13.0", "2.13.0+cpu", "2.13.0+rocm7.1", "2.13.0+rocm7.2", "2.13.1",
        "2.14.0.dev20260712+rocm7.14", "2.14.0",
    ]  # fmt: skip
    assert sorted(set(ordered), key=version_key) == ordered


@given(st.text(), st.text())
def test_any_two_texts_can_be_ordered_as_versions(one: str, other: str) -> None:
    assert (version_key(one) < version_key(other)) + (version_key(other) < version_key(one)) in (0, 1)


def dated(name: str, day: int | None, torch: str, series: str = "mi300x") -> Dated:
    made = None if day is None else datetime.datetime(2026, 11, day, tzinfo=datetime.timezone.utc)
    return Dated(name, series, made, (version_key(torch),), name)


def names(*runs: Dated) -> str:
    return " ".join(run.sha256 for run in in_order(runs))


def test_runs_with_dates_are_ordered_by_them() -> None:
    assert names(dated("b", 9, "2.12"), dated("a", 12, "2.11"), dated("c", 1, "2.13")) == "c b a"


def test_a_run_without_a_date_stands_behind_the_newest_with_versions_up_to_its_own() -> None:
    old, new = dated("old", 5, "2.12"), dated("new", 20, "2.13")
    assert names(new, dated("x", None, "2.12"), old) == "old x new"
    assert names(new, dated("x", None, "2.13"), old) == "old new x"
    assert names(new, dated("x", None, "2.11"), old) == "x old new"


def test_versions_of_another_gpu_say_nothing() -> None:
    assert names(dated("h200", 20, "2.11", "h200"), dated("x", None, "2.13"), dated("mi", 5, "2.12")) == "mi x h200"


def test_what_is_equal_is_ordered_by_its_label() -> None:
    assert names(dated("b", 9, "2.12"), dated("a", 9, "2.12")) == "a b"


days = st.one_of(st.none(), st.integers(1, 28))


@given(
    st.lists(st.tuples(days, st.sampled_from(["2.9", "2.12", "2.13"]), st.sampled_from("xy")), max_size=12),
    st.randoms(),
)
def test_the_order_does_not_depend_on_the_order_of_finding(
    runs: list[tuple[int | None, str, str]], rng: object
) -> None:
    made = [dated(f"{number:02}", *run) for number, run in enumerate(runs)]
    shuffled = list(made)
    rng.shuffle(shuffled)  # type: ignore[attr-defined]
    assert in_order(made) == in_order(shuffled)
