"""NUM215: memory and strides that were promised."""

from __future__ import annotations

import dataclasses

import pytest


def _in(build, alias, alias_bytes=0, **fact):
    return dataclasses.replace(build.fact(4, 4, **fact), alias=alias, alias_bytes=alias_bytes)


@pytest.mark.parametrize(
    ("layout", "expected", "actual", "said"),
    [
        ("view", ("self", 0), ("", 0), "is no view of self: it has memory of its own"),
        ("view", ("self", 64), ("self", 0), "begins 0 bytes behind self, expected 64"),
        ("view", ("self", 0), ("other", 0), "lies in the memory of other, expected that of self"),
        ("own", ("", 0), ("self", 0), "lies in the memory of self, expected memory of its own"),
        ("strides", ("", 0), ("self", 0), "lies in the memory of self, expected memory of its own"),
    ],
)
def test_an_output_that_lies_elsewhere_is_divergent(build, layout, expected, actual, said):
    comparison = build.comparison("exact", expected=_in(build, *expected), actual=_in(build, *actual), layout=layout)
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status) == ("NUM215", "divergent")
    assert said in finding.message


@pytest.mark.parametrize("layout", ["view", "strides"])
def test_promised_strides_that_differ_are_divergent(build, layout):
    transposed = build.fact(4, 4, strides=(1, 4))
    comparison = build.comparison("exact", expected=transposed, layout=layout)
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.message) == ("NUM215", "output 0 has strides [4, 1], expected [1, 4]")


@pytest.mark.parametrize("layout", ["own", ""])
def test_other_strides_stay_a_note(build, layout):
    comparison = build.comparison(expected=build.fact(4, 4, strides=(1, 4)), layout=layout)
    assert build.codes(build.measurement(comparison)) == [("NUM206", "supported")]


@pytest.mark.parametrize("actual", [("", 0), ("other", 0)])
def test_an_operand_that_the_cpu_hands_on_is_no_promise(build, actual):
    given, had = _in(build, "self"), _in(build, *actual)
    comparison = build.comparison("exact", expected=given, actual=had, layout="own")
    assert build.codes(build.measurement(comparison)) == []


def test_where_nothing_is_promised_memory_is_not_asked(build):
    comparison = build.comparison(actual=_in(build, "self"))
    assert build.codes(build.measurement(comparison)) == []
