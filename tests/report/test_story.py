"""The five answers: each from its run alone, and never more than its evidence can say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from audit.report.answers import Answer
from audit.report.story import story
from audit.rules.judge import judge
from audit.run_records import PreflightCheck, Run, RunEnd
from audit.schema import (
    IMPORTED,
    Case,
    DeviceInfo,
    DeviceTimes,
    Kernel,
    NotAudited,
    Source,
    Status,
    Timing,
)
from audit.verdicts import Finding, Judgement, Known, Tried
from tests.report.gpu_runs import gpu_run, spec

QUESTIONS = [
    "May I migrate?", "What blocks?", "Are the numbers the same?", "What does a step cost?", "What do I change?",
]  # fmt: skip


def whole(judgement: Judgement, status: Status = "supported") -> Judgement:
    """The same run with one status for all, at its end, with nothing left out and no check that did not pass."""
    header = replace(judgement.run.header, not_audited=(), preflight=())
    run = replace(judgement.run, header=header, end=RunEnd(True))
    verdicts = tuple(replace(v, status=status, findings=()) for v in judgement.verdicts)
    return replace(judgement, run=run, verdicts=verdicts)


def answers(judgement: Judgement) -> dict[str, Answer]:
    return {answer.question: answer for answer in story(judgement).answers}


def with_status(judgement: Judgement, place: int, status: Status, *findings: Finding) -> Judgement:
    verdicts = list(judgement.verdicts)
    verdicts[place] = replace(verdicts[place], status=status, findings=findings)
    return replace(judgement, verdicts=tuple(verdicts))


WRONG = Finding("NUM201", "divergent", "output is off by 3")


# --- may I migrate? --------------------------------------------------------------------------------------------


def test_five_questions_are_answered_in_the_order_in_which_people_ask(make_judgement: Callable[..., Judgement]) -> None:
    for backend in ("hip", "cuda", "sim", "none"):
        assert [a.question for a in story(make_judgement(20, backend=backend)).answers] == QUESTIONS


def test_yes_is_said_of_a_whole_run_on_amd_in_which_all_is_supported(make_judgement: Callable[..., Judgement]) -> None:
    answer = answers(whole(make_judgement(20, backend="hip")))["May I migrate?"]
    assert (answer.tone, answer.short) == ("good", "Yes: nothing in 20 cases blocks.")


@pytest.mark.parametrize("backend", ["cuda", "sim", "none"])
@pytest.mark.parametrize("status", ["supported", "unsupported"])
def test_a_run_that_was_not_on_amd_never_says_yes_or_no(
    make_judgement: Callable[..., Judgement], backend: str, status: Status
) -> None:
    told = answers(whole(make_judgement(20, backend=backend), status))
    assert told["May I migrate?"].short == "This run cannot say."
    assert told["May I migrate?"].commands == ("rocm-audit run cases.audit --device hip",)
    assert {answer.tone for answer in told.values()} == {"open"}
    assert told["What do I change?"].tone == "open"


def test_a_recording_on_amd_says_that_the_program_ran_and_not_that_it_is_right(
    make_judgement: Callable[..., Judgement],
) -> None:
    judgement = whole(make_judgement(20, backend="hip"), "inconclusive")
    header = replace(judgement.run.header, source=Source(IMPORTED, "trace.json"))
    told = answers(replace(judgement, run=replace(judgement.run, header=header)))
    assert told["May I migrate?"].short == "This recording cannot say."
    assert "Nothing was replayed" in told["May I migrate?"].sentences[0]
    assert told["What blocks?"].short == "Not known."
    assert told["What blocks?"].sentences == (
        "The recorded calls returned. Their results were not compared with anything.",
    )
    assert told["Are the numbers the same?"].sentences == ("Not compared: 20 cases (nothing was replayed).",)


def test_one_blocking_case_is_a_no_with_its_numbers(make_judgement: Callable[..., Judgement]) -> None:
    judgement = with_status(whole(make_judgement(20, backend="hip")), 3, "divergent", WRONG)
    told = answers(judgement)
    assert (told["May I migrate?"].tone, told["May I migrate?"].short) == ("bad", "Not as it is: 1 case of 1 op block.")
    assert told["What blocks?"].sentences[0] == "1 case divergent, of 20 cases."
    [point] = told["What blocks?"].points
    assert (point.mark, point.text, point.anchor) == (
        "divergent", "output is off by 3", f"case-{judgement.verdicts[3].key}",
    )  # fmt: skip


def test_what_costs_time_does_not_block(make_judgement: Callable[..., Judgement]) -> None:
    judgement = with_status(whole(make_judgement(20, backend="hip")), 3, "slow", Finding("SPD401", "slow", "late"))
    answer = answers(judgement)["May I migrate?"]
    assert answer.tone == "good"
    assert "1 case slow: right, and they cost time." in answer.sentences


def test_each_open_end_keeps_a_good_run_from_a_yes(make_judgement: Callable[..., Judgement]) -> None:
    good = whole(make_judgement(20, backend="hip"))
    run, header = good.run, good.run.header

    def short(judgement: Judgement) -> str:
        answer = answers(judgement)["May I migrate?"]
        assert answer.tone == "open"
        return answer.short

    doubtful = Finding("INC912", "inconclusive", "traced into another device's ops")
    left = replace(header, not_audited=(NotAudited("flash_attn", "imported", 3),))
    failed = replace(header, source=replace(header.source, error="KeyError"))
    lost = replace(run, end=RunEnd(False, "device lost"))
    start = "Nothing found blocks, but "
    assert short(with_status(good, 0, "inconclusive")) == start + "1 of 20 cases have no answer."
    assert short(replace(good, run=lost)) == start + "the audit did not reach its end."
    assert short(replace(good, run=replace(run, end=None))) == start + "the audit did not reach its end."
    assert short(replace(good, run=replace(run, header=failed))) == start + "the program ended early."
    assert (
        short(replace(good, run=replace(run, header=left))) == start + "3 things that the program did are not audited."
    )
    assert short(replace(good, root_causes=(doubtful,))) == start + "what is named first on this page is in doubt."


def test_a_machine_that_cannot_run_it_comes_before_the_ops(make_judgement: Callable[..., Judgement]) -> None:
    cause = Finding("SUP110", "unsupported", "gfx1100 is not in the arch list")
    told = answers(replace(whole(make_judgement(20, backend="hip")), root_causes=(cause,)))
    assert told["May I migrate?"].short == "Not as this machine is set up."
    assert told["What blocks?"].points[0].text == "gfx1100 is not in the arch list"
    drift = Finding("NUM221", "divergent", "accumulated error starts in layer 3")
    told = answers(replace(whole(make_judgement(20, backend="hip")), root_causes=(drift,)))
    assert told["May I migrate?"].short == "Not as it is: the step's error grows."


def test_what_the_audit_did_not_reach_is_not_cleared(make_judgement: Callable[..., Judgement]) -> None:
    judgement = with_status(whole(make_judgement(20, backend="sim")), 2, "inconclusive")
    answer = answers(judgement)["What blocks?"]
    assert answer.short == "Nothing in 19 of 20 cases on the simulated device."
    assert answer.sentences == (
        "None of 19 cases is unsupported or divergent.",
        "1 of 20 cases is inconclusive, and may block.",
    )


def test_a_recording_of_kernels_alone_has_their_time_and_says_that_no_op_has(
    make_judgement: Callable[..., Judgement],
) -> None:
    judgement = make_judgement(0, backend="hip")
    orphans = NotAudited("kernels launched by no op", "orphaned", n_seen=2, kernels=(Kernel("k", 120.0, 2),))
    header = replace(judgement.run.header, source=Source(IMPORTED, "trace.json"), not_audited=(orphans,))
    told = answers(replace(judgement, run=replace(judgement.run, header=header)))
    assert told["What does a step cost?"].short == "120 µs on AMD Instinct MI300X, of no op."
    assert told["What does a step cost?"].commands == ()
    assert told["May I migrate?"].commands == ("rocm-audit run PROGRAM.py --device hip",)


def test_a_run_without_a_case_says_so(make_judgement: Callable[..., Judgement]) -> None:
    for backend in ("hip", "sim"):
        told = answers(make_judgement(0, backend=backend))
        assert told["May I migrate?"].short == "This run cannot say: no case was judged."
        assert told["What blocks?"].short == "Not known: no case was judged."
        assert {answer.tone for answer in told.values()} == {"open"}


# --- the numbers -----------------------------------------------------------------------------------------------


def test_a_real_run_is_told_with_its_numbers(llama_judgement: Judgement) -> None:
    told = answers(llama_judgement)
    numbers = told["Are the numbers the same?"]
    n = len(llama_judgement.verdicts)
    assert n == 274
    assert numbers.short == "Not in 5 of 249 compared cases on the simulated device."
    assert numbers.sentences[:3] == (
        "Of 274 cases, 249 were compared with the CPU: 219 the same bit for bit, 25 within what dtype and algorithm "
        "explain, 5 beyond it.",
        "The largest error within is 1.02 times its noise floor, where 8 are allowed.",
        "Not compared: 25 cases (17 shape, dtype and stride only, 6 memory ran out, 1 crashed on the device, 1 raised "
        "on the device).",
    )
    assert told["What does a step cost?"].short == "Not known: no GPU was timed."
    assert len(told["What does a step cost?"].commands) == 2


def test_nothing_compared_is_not_all_the_same(make_judgement: Callable[..., Judgement]) -> None:
    answer = answers(make_judgement(20, backend="none"))["Are the numbers the same?"]
    assert (answer.short, answer.sentences) == ("No number was compared.", ("Not compared: 20 cases (nothing ran).",))


# --- the cost of a step ----------------------------------------------------------------------------------------

MM = Case("mm-1", "aten::mm.default", (spec(1024, 1024), spec(1024, 1024)), n_calls=10)


def timed(make_judgement: Callable[..., Judgement], backend: str, us: float, case: Case = MM) -> Run:
    return gpu_run(make_judgement, (case, us), backend=backend)


def test_a_step_is_set_beside_the_other_device(make_judgement: Callable[..., Judgement]) -> None:
    here, there = timed(make_judgement, "hip", 60.0), timed(make_judgement, "cuda", 40.0)
    answer = answers(judge(here, other=there))["What does a step cost?"]
    assert answer.short == "1.50 times what it costs on NVIDIA H200."
    assert answer.sentences[0] == (
        "1 kind of call ran on both: in a step 300 µs on AMD Instinct MI300X and 200 µs on NVIDIA H200 (stand-in)."
    )
    [point] = answer.points
    assert (point.mark, point.amount, point.anchor) == ("dearer", "+100 µs a step", "case-mm-1")


def test_what_only_one_device_ran_is_named_and_left_out(make_judgement: Callable[..., Judgement]) -> None:
    other = replace(MM, key="add-1", op="aten::add.Tensor")
    here, there = timed(make_judgement, "hip", 60.0), timed(make_judgement, "cuda", 40.0)
    there = replace(
        there, cases=(*there.cases, other),
        measurements={**there.measurements, "add-1": replace(there.measurements["mm-1"], key="add-1")},
    )  # fmt: skip
    answer = answers(judge(here, other=there))["What does a step cost?"]
    assert answer.short == "1.50 times what it costs on NVIDIA H200."
    assert answer.sentences[1] == "Besides, 1 kind 200 µs only on NVIDIA H200: these are not in the comparison."


def test_no_call_in_common_is_no_ratio(make_judgement: Callable[..., Judgement]) -> None:
    here = timed(make_judgement, "hip", 60.0)
    there = timed(make_judgement, "cuda", 40.0, replace(MM, key="add-1", op="aten::add.Tensor"))
    answer = answers(judge(here, other=there))["What does a step cost?"]
    assert answer.short == "300 µs, compared with nothing."


def test_times_that_came_with_the_trace_are_taken(make_judgement: Callable[..., Judgement]) -> None:
    run = timed(make_judgement, "hip", 60.0)
    device = DeviceInfo("cuda", "NVIDIA H200", "sm_90")
    elsewhere = DeviceTimes(device, "stand-in", {}, {"mm-1": Timing(120.0, 1.0, 9)})
    judgement = judge(replace(run, header=replace(run.header, elsewhere=elsewhere)))
    answer = answers(judgement)["What does a step cost?"]
    assert answer.short == "0.50 times what it costs on NVIDIA H200."
    assert "its times came with the trace" in answer.sentences[0]


@pytest.mark.parametrize("backend", ["sim", "none"])
def test_times_of_the_trace_are_told_where_no_gpu_ran(make_judgement: Callable[..., Judgement], backend: str) -> None:
    judgement = make_judgement(20, backend=backend)
    keys = [verdict.key for verdict in judgement.verdicts if verdict.n_calls == 8]
    device = DeviceInfo("cuda", "NVIDIA H200", "sm_90")
    elsewhere = DeviceTimes(device, "stand-in", {}, dict.fromkeys(keys, Timing(100.0, 1.0, 9)))
    header = replace(judgement.run.header, elsewhere=elsewhere)
    answer = answers(replace(judgement, run=replace(judgement.run, header=header)))["What does a step cost?"]
    assert answer.short == "Known of the other device alone."
    assert answer.sentences[0].startswith(
        "On NVIDIA H200 (stand-in) a step takes 2.00 ms of device time, over 5 timed of 20 cases"
    )


@pytest.mark.parametrize(
    ("backend", "short", "command"),
    [
        ("hip", "300 µs on AMD Instinct MI300X.", "rocm-audit run cases.audit --device cuda -o nvidia"),
        ("cuda", "300 µs on NVIDIA H200.", "rocm-audit run cases.audit --device hip --compare THIS_FOLDER"),
    ],
)
def test_without_another_device_it_says_how_to_have_one(
    make_judgement: Callable[..., Judgement], backend: str, short: str, command: str
) -> None:
    answer = answers(judge(timed(make_judgement, backend, 60.0)))["What does a step cost?"]
    assert (answer.short, answer.commands[0]) == (short, command)


# --- what to change --------------------------------------------------------------------------------------------


def test_equal_remedies_are_one_and_what_helped_comes_first(make_judgement: Callable[..., Judgement]) -> None:
    judgement = whole(make_judgement(20, backend="hip"))
    known = Known("MI200 flushes denormals", "https://rocm.docs.amd.com/", "set ROCBLAS_INTERNAL_FP16_ALT_IMPL=1")
    for place in (0, 1):
        judgement = with_status(judgement, place, "divergent", replace(WRONG, known=known))
    data = {"remedy": "x.contiguous()", "device_us_with": 10.0, "device_us_without": 30.0}
    told = Finding("FBK320", "supported", "1 alternative tried", data)
    judgement = with_status(judgement, 3, "slow", Finding("SPD403", "slow", "late"), told)
    tried = (Tried("contiguous", "inputs made contiguous", "cures", "supported"),)
    verdicts = list(judgement.verdicts)
    verdicts[3] = replace(verdicts[3], tried=tried, n_calls=8)
    answer = answers(replace(judgement, verdicts=tuple(verdicts)))["What do I change?"]
    assert answer.short == "2 remedies; tried here, 1 of them helped."
    assert [(p.text, p.amount) for p in answer.points] == [
        ("x.contiguous()", "saves 80.0 µs a step, 1 case, tried, helps"),
        ("set ROCBLAS_INTERNAL_FP16_ALT_IMPL=1", "2 cases, not tried"),
    ]


def test_a_failed_check_is_the_first_thing_to_change(make_judgement: Callable[..., Judgement]) -> None:
    judgement = whole(make_judgement(20, backend="hip"))
    check = PreflightCheck("override", "failed", "HSA_OVERRIDE_GFX_VERSION is set", "unset it")
    run = replace(judgement.run, header=replace(judgement.run.header, preflight=(check,)))
    answer = answers(replace(judgement, run=run))["What do I change?"]
    assert (answer.points[0].text, answer.points[0].amount) == ("unset it", "before any op")


def test_findings_without_a_remedy_are_counted(make_judgement: Callable[..., Judgement]) -> None:
    judgement = with_status(whole(make_judgement(20, backend="hip")), 3, "divergent", WRONG)
    answer = answers(judgement)["What do I change?"]
    assert answer.short == "No remedy is known for what was found."
    assert answer.sentences[0] == (
        "No remedy is known for the one case with a finding. It has a script that shows it again and a text to report "
        "it."
    )
