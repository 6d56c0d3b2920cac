"""NUM220 to NUM222 on steps of a few calls, each with literal numbers."""

from __future__ import annotations

from typing import Any

from audit.drift_records import Drift, DriftEnd, DriftStarted, DriftStep
from audit.rules.drift import judge_drift, wrong_in_step
from audit.rules.thresholds import DEFAULT
from audit.run_records import Run, RunHeader
from audit.schema import DeviceInfo, Outcome, Source
from audit.verdicts import DriftJudgement, Finding

EPS = 2.0**-23


def step(index: int, op: str = "aten::mm.default", **fields: Any) -> DriftStep:
    given = {"module": f"M.{index}", "error": EPS, "noise": EPS, "eps": EPS, "n_elements": 4096, "ratio": 1.0}
    given |= {"before": (index - 1,) if index else ()}
    return DriftStep(index, f"k-{index}", op, "forward", **(given | fields))


def judged(*steps: DriftStep, **fields: Any) -> DriftJudgement:
    end = fields.pop("end", DriftEnd(len(steps), len(steps)))
    found = judge_drift(Drift(steps, end, **fields), DEFAULT)
    assert found is not None
    return found


def codes(*steps: DriftStep) -> list[str]:
    return [finding.code for finding in judged(*steps).findings]


def the(code: str, judgement: DriftJudgement) -> Finding:
    [finding] = [finding for finding in judgement.findings if finding.code == code]
    return finding


def test_nothing_was_played_nothing_is_said() -> None:
    assert judge_drift(None, DEFAULT) is None


def test_error_within_eight_times_the_noise_is_healthy() -> None:
    assert codes(step(0), step(1, error=8 * EPS)) == []
    assert codes(step(0), step(1, error=8.1 * EPS)) == ["NUM221"]


def test_a_cpu_that_is_right_to_the_last_bit_leaves_one_rounding_as_noise() -> None:
    assert codes(step(0, error=7 * EPS, noise=0.0)) == []


def test_one_number_is_held_to_the_noise_of_what_it_is_made_of() -> None:
    before = step(0, noise=100 * EPS)
    loss = {"error": 90 * EPS, "noise": EPS}
    assert codes(before, step(1, "aten::mean.default", n_elements=1, **loss)) == []
    assert codes(before, step(1, "aten::mean.default", n_elements=4096, **loss)) == ["NUM221"]


def test_error_starts_where_it_left_the_noise_and_not_where_it_was_first_too_much() -> None:
    steps = (step(0), step(1, error=4 * EPS), step(2, error=7 * EPS), step(3, error=20 * EPS))
    finding = the("NUM221", judged(*steps))
    assert finding.data["module"] == "M.1"
    assert finding.data["ratio"] == 4.0
    assert finding.data["largest_ratio"] == 20.0
    assert finding.data["n_beyond"] == 1


def test_a_call_that_had_no_part_in_it_is_not_blamed() -> None:
    bystander = step(0, error=7 * EPS)
    assert the("NUM221", judged(bystander, step(1, before=(), error=9 * EPS))).data["call"] == 1


def test_wrong_after_its_predecessor_alone_right_is_num220_and_names_who_made_the_memory() -> None:
    wrong = {"ratio": 900.0, "alone_ratio": 1.0, "alone_wrong": 0, "cause": "layout", "before": (1,)}
    finding = the("NUM220", judged(step(0, "aten::bmm.default"), step(1, "aten::transpose.int"), step(2, **wrong)))
    assert finding.status == "divergent"
    assert "after aten::bmm.default (call 0)" in finding.message
    assert "its inputs' strides make the difference" in finding.message
    assert (finding.data["in_step_ratio"], finding.data["alone_ratio"]) == (900.0, 1.0)


def test_wrong_alone_as_well_is_num222_and_so_is_what_is_doubtful_alone() -> None:
    assert codes(step(0, ratio=900.0, alone_ratio=800.0, alone_wrong=0)) == ["NUM222"]
    assert codes(step(0, ratio=8.5, alone_ratio=7.5, alone_wrong=0)) == ["NUM222"]
    assert codes(step(0, ratio=900.0)) == ["NUM222"]


def test_it_stands_beside_the_findings_of_its_case_and_not_of_what_was_tried_instead(build: Any) -> None:
    case, measurement = build.case(key="k-0"), build.measurement(key="k-0")
    drift = Drift((step(0, ratio=900.0, alone_ratio=1.0, alone_wrong=0),), DriftEnd(1, 1))
    header = RunHeader("simulated", Source("script", "m.py"), DeviceInfo("sim", "sim", "sim"), {}, {}, "", "0", 1, 1)
    run = Run(header, (case,), {"k-0": measurement}, drift=drift)
    found = wrong_in_step(run, None, DEFAULT)
    assert [finding.code for finding in found(case, measurement)] == ["NUM220"]
    assert list(found(case, build.measurement(key="k-0", notes=("tried instead",)))) == []


def test_many_calls_of_an_op_are_one_finding() -> None:
    wrong = {"ratio": 900.0, "alone_ratio": 1.0, "alone_wrong": 0}
    finding = the("NUM220", judged(*(step(index, **wrong) for index in range(5))))
    assert finding.data["n_calls"] == 5
    assert "so are 4 more calls" in finding.message


def test_a_call_that_raised_and_one_that_never_came_back_are_named() -> None:
    raised = step(0, failure=Outcome("raised", message="HIP error: invalid device function"), error=None, ratio=None)
    end = DriftEnd(9, 1, reason="the process that played the step ended (signal 11)")
    found = judged(raised, end=end, started=DriftStarted(1, "aten::bmm.default")).findings
    assert [finding.code for finding in found] == ["SUP106", "SUP106"]
    assert {finding.status for finding in found} == {"unsupported"}
    assert "signal 11" in found[1].message


def test_a_step_that_ended_early_says_so_as_a_note() -> None:
    finding = the("INC915", judged(step(0), end=DriftEnd(9, 1, reason="memory: no room")))
    assert (finding.status, finding.message) == (
        "supported",
        "the step was not played to its end (1 of 9 calls): memory: no room",
    )


def test_calls_that_are_not_on_the_tape_are_counted_in_the_sentence() -> None:
    sentence = judged(step(0), end=DriftEnd(1, 1, n_unseen=15)).sentence
    assert "; 15 more calls could not be put on the tape" in sentence


def test_modules_stand_in_the_order_in_which_they_end() -> None:
    rows = judged(step(0, module="M"), step(1, module="M.a", error=3 * EPS), step(2, module="M")).modules
    assert [(row.module, row.n_calls, row.largest_ratio) for row in rows] == [("M.a", 1, 3.0), ("M", 2, 1.0)]
