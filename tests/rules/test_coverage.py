"""Totals by status, with every status present."""

from __future__ import annotations

import dataclasses

import pytest

from audit.rules.coverage import coverage, percentage, statuses_by_op, worst
from audit.schema import STATUSES
from audit.verdicts import Verdict


def _verdict(op, status, n_calls=1, device_us=None):
    total_us = None if device_us is None else device_us * n_calls
    return Verdict(f"{op}-{status}", op, status, n_calls, "forward", (), (), "", (), device_us, total_us=total_us)


VERDICTS = (
    _verdict("a", "supported", 10, 2.0),
    _verdict("a", "divergent", 5, 4.0),
    _verdict("b", "supported", 1),
    _verdict("b", "inconclusive", 2),
    _verdict("c", "supported", 3, 1.0),
)


def test_each_unit_adds_up_and_names_all_statuses():
    cases, ops, calls, device_time = coverage(VERDICTS)
    assert [total.unit for total in (cases, ops, calls, device_time)] == ["cases", "ops", "calls", "device_time"]
    assert cases.by_status == {**dict.fromkeys(STATUSES, 0), "supported": 3, "divergent": 1, "inconclusive": 1}
    assert ops.by_status == {**dict.fromkeys(STATUSES, 0), "supported": 1, "divergent": 1, "inconclusive": 1}
    assert calls.by_status == {**dict.fromkeys(STATUSES, 0), "supported": 14, "divergent": 5, "inconclusive": 2}
    assert device_time.by_status == {**dict.fromkeys(STATUSES, 0), "supported": 23.0, "divergent": 20.0}
    assert [total.total for total in (cases, ops, calls, device_time)] == [5, 3, 21, 43.0]


def test_an_op_with_one_unknown_case_is_not_called_supported():
    assert statuses_by_op(VERDICTS) == {"a": "divergent", "b": "inconclusive", "c": "supported"}


def test_a_device_finding_outranks_not_knowing():
    assert worst(["inconclusive", "slow", "supported"]) == "slow"


def test_nothing_judged_is_a_total_of_zero():
    assert [(total.total, set(total.by_status)) for total in coverage(())] == [(0, set(STATUSES))] * 4


def test_cases_without_a_time_are_no_part_of_the_device_time():
    untimed = tuple(dataclasses.replace(verdict, device_us=None, total_us=None) for verdict in VERDICTS)
    assert coverage(untimed)[3].total == 0


@pytest.mark.parametrize(
    ("part", "total", "text"),
    [
        (1, 4, "25 %"),
        (1, 3, "33.3 %"),
        (0, 5, "0 %"),
        (5, 5, "100 %"),
        (9999, 10000, "> 99.9 %"),
        (1, 10000, "< 0.1 %"),
        (0, 0, "-"),
    ],
)
def test_a_percentage_is_never_rounded_up_to_all_or_down_to_none(part, total, text):
    assert percentage(part, total) == text
