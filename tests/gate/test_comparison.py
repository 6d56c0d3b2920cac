"""What counts as a difference, and what is only the spread of a run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from audit.errors import UsageError
from audit.gate.policy import Policy
from audit.gate.side import Cause
from audit.schema import DeviceInfo


def test_a_worse_status_is_a_regression_and_a_better_one_is_fixed(build: Any) -> None:
    good, bad = build.case(), build.case(status="divergent", reason="output 0 is 40 noise floors off")
    assert build.one(good, bad) == [("regressed", "fail")]
    assert build.one(bad, good) == [("fixed", "note")]
    told = build.gate(build.side(good), build.side(bad)).judged[0].difference.message
    assert told == "was supported, and is divergent (output 0 is 40 noise floors off)"


def test_what_the_audit_can_no_longer_say_fails(build: Any) -> None:
    assert build.one(build.case(), build.case(status="inconclusive")) == [("inconclusive", "fail")]
    assert build.one(build.case(status="inconclusive"), build.case(status="inconclusive")) == []


def test_a_case_that_is_gone_fails_and_a_new_one_is_told(build: Any) -> None:
    first, second = build.case("mm-0"), build.case("mm-1")
    gone = build.gate(build.side(first, second), build.side(first))
    assert [(item.difference.kind, item.level) for item in gone.judged] == [("gone", "fail")]
    assert gone.exit_code == 1
    new = build.gate(build.side(first), build.side(first, second))
    assert [(item.difference.kind, item.level) for item in new.judged] == [("new", "warn")]
    assert new.exit_code == 0


@pytest.mark.parametrize(
    ("after_us", "after_iqr_us", "kinds"),
    [
        (130.0, 4.0, [("slower", "fail")]),
        (124.0, 4.0, []),  # under the ratio of 1.25
        (124.0, 40.0, []),
        (130.0, 40.0, [("flaky", "warn")]),  # within both spreads
        (300.0, 1e308, [("flaky", "warn")]),  # a spread that nobody measured hides nothing
        (70.0, 4.0, [("faster", "note")]),
    ],
)
def test_slower_is_more_than_both_spreads_and_the_ratio(
    build: Any, after_us: float, after_iqr_us: float, kinds: list[tuple[str, str]]
) -> None:
    assert build.one(build.case(), build.case(device_us=after_us, iqr_us=after_iqr_us)) == kinds


def test_a_recording_is_compared_by_time_and_path_though_no_number_is_known(build: Any) -> None:
    unknown = build.case(status="inconclusive", worst_ratio=None)
    assert build.one(unknown, replace(unknown, device_us=200.0)) == [("slower", "fail")]
    assert build.one(unknown, replace(unknown, libraries=("rocBLAS",))) == [("other path", "warn")]


def test_a_time_that_was_taken_once_has_no_spread_to_be_held_against(build: Any) -> None:
    assert build.one(build.case(), build.case(device_us=200.0, is_timed_once=True)) == [("flaky", "warn")]


def test_what_is_wrong_with_the_run_and_no_case_is_compared_by_its_code(build: Any) -> None:
    drifts = build.side(causes=(Cause("NUM220", "divergent", "mm is right alone and wrong in the step"),))
    outcome = build.gate(build.side(), drifts)
    assert [(item.difference.key, item.difference.kind) for item in outcome.judged] == [("run-NUM220", "regressed")]
    assert (outcome.exit_code, build.gate(drifts, drifts).judged) == (1, ())
    assert build.gate(drifts, build.side()).exit_code == 0


def test_within_a_kind_what_costs_most_comes_first(build: Any) -> None:
    keys = ("mm-0", "mm-1")
    slower = (build.case("mm-0", device_us=200.0), build.case("mm-1", device_us=200.0, n_calls=50))
    outcome = build.gate(build.side(*map(build.case, keys)), build.side(*slower))
    assert [item.difference.key for item in outcome.judged] == ["mm-1", "mm-0"]


def test_some_microseconds_more_are_a_launch_and_nothing_slower(build: Any) -> None:
    assert build.one(build.case(device_us=4.0, iqr_us=0.1), build.case(device_us=8.0, iqr_us=0.1)) == []


def test_the_message_of_a_slower_case_has_the_numbers_and_the_cost(build: Any) -> None:
    outcome = build.gate(build.side(build.case()), build.side(build.case(device_us=300.0, n_calls=1)))
    assert outcome.judged[0].difference.message == "takes 300 µs, was 100 µs (3×, spread 8 µs); +0.2 ms over its call"


def test_a_difference_that_the_run_itself_does_not_repeat_is_flaky(build: Any) -> None:
    divergent = build.case(status="divergent")
    assert build.one(build.case(), replace(divergent, seen=("supported",))) == [("flaky", "warn")]
    assert build.one(build.case(seen=("divergent",)), divergent) == [("flaky", "warn")]
    assert build.one(build.case(seen=("slow",)), divergent) == [("regressed", "fail")]
    assert build.one(build.case(), build.case(device_us=200.0, seen_us=(101.0,))) == [("flaky", "warn")]
    assert build.one(build.case(seen_us=(190.0,)), build.case(device_us=200.0)) == [("flaky", "warn")]


def test_an_error_that_grew_fails_where_it_is_more_than_rounding(build: Any) -> None:
    assert build.one(build.case(worst_ratio=3.0), build.case(worst_ratio=9.0)) == [("less exact", "fail")]
    assert build.one(build.case(worst_ratio=0.1), build.case(worst_ratio=2.0)) == []
    assert build.one(build.case(worst_ratio=6.0), build.case(worst_ratio=9.0)) == []
    assert build.one(build.case(), build.case(worst_ratio=9.0, seen_ratios=(0.5,))) == [("flaky", "warn")]


def test_another_library_or_op_is_told_and_fails_where_the_policy_says_so(build: Any) -> None:
    other = build.case(libraries=("rocBLAS",), chosen_ops=("aten::mm.out",))
    assert build.one(build.case(), other) == [("other path", "warn")]
    [told] = build.gate(build.side(), build.side(other)).judged
    assert told.difference.message == (
        "ran the ops aten::mm.out, before aten::mm.default; kernels of rocBLAS, before of hipBLASLt"
    )
    assert build.one(build.case(), build.case(libraries=None, chosen_ops=None)) == []
    strict = Policy(levels={"other path": "fail"})
    assert build.gate(build.side(), build.side(other), strict).exit_code == 1


def test_the_same_status_for_another_reason_is_told(build: Any) -> None:
    raised = build.case(status="unsupported", codes=("SUP101",))
    assert build.one(raised, replace(raised, codes=("SUP102",))) == [("other finding", "warn")]


def test_times_of_a_simulated_device_are_not_in_a_side(build: Any) -> None:
    """The rule of ``slow``; and the outcome says that times were not compared."""
    side = build.side(build.case(device_us=None), backend="sim")
    assert "Times were not compared: they mean something only where a GPU ran." in build.gate(side, side).remarks


def test_what_differs_around_the_runs_is_grouped_by_whom_to_ask(build: Any) -> None:
    old = build.side(environment={"torch": "2.12.0", "hip": "7.1", "amdgpu": "6.12", "os": "Linux"})
    new = build.side(environment={"torch": "2.13.0", "hip": "7.2.1", "amdgpu": "6.14", "os": "Linux", "HSA_XNACK": "1"})
    found = [(one.group, one.name, one.baseline, one.candidate) for one in build.gate(old, new).environment]
    assert found == [
        ("torch", "torch", "2.12.0", "2.13.0"),
        ("ROCm", "hip", "7.1", "7.2.1"),
        ("driver", "amdgpu", "6.12", "6.14"),
        ("settings", "HSA_XNACK", "", "1"),
    ]


def test_two_traces_are_told_apart_before_their_cases(build: Any) -> None:
    old = build.side(build.case("mm-0"), build.case("mm-1"), environment={"torch": "2.12.0"})
    new = build.side(build.case("mm-0", n_calls=2), build.case("addmm-0", op="aten::addmm.default"))
    trace = build.gate(old, new).trace
    assert trace is not None
    assert trace.sentence == (
        "the two runs are not of the same trace: of the cases, 1 only in the baseline, 1 only in the candidate, "
        "1 called another number of times (aten::mm.default, aten::addmm.default); torch 2.12.0 and torch 2.13.0 may "
        "decompose the same program into other ops; replay one .audit file on both sides"
    )
    assert build.gate(old, old).trace is None


def test_other_evidence_and_another_gpu_are_refused_unless_told(build: Any) -> None:
    measured, simulated = build.side(), build.side(backend="sim")
    with pytest.raises(UsageError, match=r"measured and the candidate simulated.*\[other-evidence\]"):
        build.gate(measured, simulated)
    with pytest.raises(UsageError, match=r"--allow-other-gpu \[other-gpu\]"):
        build.gate(measured, simulated, other_evidence=True)
    assert build.gate(measured, simulated, other_evidence=True, other_gpu=True).exit_code == 0
    mi210 = build.side(device=DeviceInfo("hip", "AMD Instinct MI210", "gfx90a"))
    with pytest.raises(UsageError, match=r"MI300X.*MI210"):
        build.gate(measured, mi210)


def test_a_candidate_that_is_no_whole_run_is_not_judged(build: Any) -> None:
    for candidate in (build.side(incomplete="it was stopped before its end"), replace(build.side(), cases=())):
        assert build.gate(build.side(), candidate).exit_code == 3
    left_out = build.case(status="inconclusive", is_left_out=True, reason="left out: the time budget was spent")
    short = build.side(build.case("mm-1"), left_out, incomplete="the time budget was spent (900 s)")
    whole = build.side(build.case("mm-1"), build.case())
    assert build.gate(whole, short).exit_code == 3
    allowed = build.gate(whole, short, incomplete=True)
    assert (allowed.exit_code, [item.difference.kind for item in allowed.judged]) == (0, ["left out"])
    assert build.gate(whole, build.side(left_out, incomplete="x"), incomplete=True).exit_code == 3, "nothing ran"


def test_a_case_that_was_not_run_is_missed_even_where_the_run_calls_itself_whole(build: Any) -> None:
    left_out = build.case(status="inconclusive", is_left_out=True)
    assert build.gate(build.side(build.case("a"), build.case()), build.side(build.case("a"), left_out)).exit_code == 3


def test_a_baseline_that_would_let_everything_pass_is_refused(build: Any) -> None:
    for baseline in (replace(build.side(), cases=()), build.side(incomplete="it was stopped before its end")):
        with pytest.raises(UsageError, match="incomplete-baseline"):
            build.gate(baseline, build.side())
