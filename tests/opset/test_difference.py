"""Two traces side by side: what counts as a difference, and what does not."""

from __future__ import annotations

from dataclasses import replace

from audit.opset.difference import CaseDifference, OpDifference, difference
from audit.schema import NotAudited, Values
from tests.opset.test_merging import EXP, SIN, TRACE


def test_two_recordings_of_one_program_on_two_machines_are_equal() -> None:
    elsewhere = replace(
        TRACE,
        environment={"torch": "2.12.0", "os": "Linux", "rocm": "7.0"},
        cases=(SIN, replace(EXP, values={0: Values(n_sampled=1, minimum=2.0)}, modules=(), sources=("y.py:9",))),
    )
    found = difference(TRACE, elsewhere)
    assert found.is_equal
    assert (found.n_equal, found.cases, found.ops, found.not_audited) == (2, (), (), ())
    assert found.environment == {"rocm": ("", "7.0"), "torch": ("2.13.0", "2.12.0")}


def test_cases_of_one_trace_alone_and_other_counts_are_told_apart_by_op() -> None:
    other = replace(EXP, key="exp-1")
    found = difference(replace(TRACE, cases=(EXP, SIN)), replace(TRACE, cases=(other, replace(SIN, n_calls=5))))
    assert not found.is_equal
    assert found.ops == (
        OpDifference("aten::exp.default", n_only_a=1, n_only_b=1, n_other_counts=0, n_equal=0),
        OpDifference("aten::sin.default", n_only_a=0, n_only_b=0, n_other_counts=1, n_equal=0),
    )
    assert found.cases == (
        CaseDifference("exp-0", "aten::exp.default", "forward", "f32[2]", 3, 0),
        CaseDifference("exp-1", "aten::exp.default", "forward", "f32[2]", 0, 3),
        CaseDifference("sin-0", "aten::sin.default", "forward", "f32[2]", 1, 5),
    )


def test_what_was_not_audited_counts_even_where_it_is_no_call() -> None:
    found = difference(TRACE, replace(TRACE, not_audited=(NotAudited("y", "z", 3), NotAudited("compiled", "eager", 0))))
    assert found.not_audited == (("compiled", "eager", 0, 0), ("y", "z", 2, 3))
    assert not found.is_equal
