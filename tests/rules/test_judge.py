"""A run to its judgement: every case has a verdict, and partial runs say what is missing."""

from __future__ import annotations

import dataclasses

import pytest

from audit.rules.judge import judge, status_of
from audit.rules.thresholds import Thresholds
from audit.run_records import Alternative, Change, Run, RunEnd, Trial
from audit.schema import Kernel, Outcome, Path, Timing
from audit.verdicts import Finding


def _finding(status):
    return Finding("SUP101", status, "")


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        ((), "supported"),
        (("supported", "supported"), "supported"),
        (("supported", "inconclusive"), "inconclusive"),
        (("inconclusive", "slow"), "slow"),
        (("slow", "falling_back"), "falling_back"),
        (("divergent", "falling_back", "slow"), "divergent"),
        (("divergent", "unsupported", "inconclusive"), "unsupported"),
    ],
)
def test_a_status_is_the_worst_finding_about_the_device(statuses, expected):
    assert status_of(map(_finding, statuses)) == expected


def test_a_verdict_carries_the_case_its_times_and_its_library(build):
    case = build.case(n_calls=7, phase="backward", modules=("layer.0",), sources=("model.py:3",))
    kernels = (Kernel("Cijk_Ailk_Bljk_BBS_BH_MT32x64x64", 9.0), Kernel("Memcpy DtoH (Device -> Pinned)", 50.0))
    measurement = build.measurement(
        path=Path(True, True, kernels=kernels),
        device_time=Timing(12.0, 1.0, 20),
        reference_time=Timing(30.0, 2.0, 20),
    )
    [verdict] = build.judgement((case,), (measurement,)).verdicts
    assert (verdict.key, verdict.op, verdict.status) == ("mm-0", "aten::mm.default", "supported")
    assert (verdict.n_calls, verdict.phase, verdict.modules) == (7, "backward", ("layer.0",))
    assert verdict.sources == ("model.py:3",)
    assert verdict.signature == "f32[4, 4], f32[4, 4]"
    assert (verdict.device_us, verdict.reference_us) == (12.0, 30.0)
    assert verdict.library == "rocBLAS (Tensile)"


def test_an_unknown_kernel_names_no_library(build):
    path = Path(True, True, kernels=(Kernel("my_special_gemm", 9.0),))
    [verdict] = build.judgement((build.case(),), (build.measurement(path=path),)).verdicts
    assert verdict.library is None


def test_all_findings_are_kept_beside_the_worst(build):
    measurement = build.measurement(build.comparison(worst_ratio=99.0, n_not_repeated=2), canary="failed")
    [verdict] = build.judgement((build.case(),), (measurement,)).verdicts
    assert verdict.status == "unsupported"
    assert [f.code for f in verdict.findings] == ["SUP105", "NUM201", "NUM208"]


def test_a_case_left_started_is_judged_as_what_it_did(build):
    [verdict] = build.judgement((build.case(),), started=("mm-0",)).verdicts
    assert verdict.status == "unsupported"
    [finding] = verdict.findings
    assert finding.code == "SUP104"
    assert finding.message == "crashed or hung, unconfirmed: the audit ended while this case ran"


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (None, "INC911"),
        (RunEnd(False, "the time budget was spent"), "INC905"),
        (RunEnd(False, "the device was lost after mm-9"), "INC904"),
        (RunEnd(False), "INC904"),
        (RunEnd(True), "INC906"),
    ],
)
def test_a_case_never_measured_has_a_reason(build, end, code):
    [verdict] = build.judgement((build.case(),), end=end).verdicts
    assert (verdict.status, [f.code for f in verdict.findings]) == ("inconclusive", [code])


def test_recorded_is_judged_plus_inconclusive(build):
    cases = tuple(build.case(key=f"mm-{i}", n_calls=i) for i in range(1, 5))
    measurements = (
        dataclasses.replace(build.measurement(), key="mm-1"),
        dataclasses.replace(build.measurement(device=Outcome("raised", message="no")), key="mm-2"),
    )
    judgement = build.judgement(cases, measurements, started=("mm-3",))
    assert len(judgement.verdicts) == len(cases)
    by_unit = {total.unit: total for total in judgement.coverage}
    assert by_unit["cases"].by_status["inconclusive"] == 1
    assert by_unit["cases"].total == 4
    assert by_unit["calls"].total == 10


def test_the_report_is_given_every_threshold_with_its_source(build):
    rows = build.judgement((build.case(),), (build.measurement(),)).thresholds
    assert ("allowed_ratio", "8") in [(name, value) for name, value, _ in rows]
    assert all(source for _, _, source in rows)


def test_rejudging_with_another_threshold_needs_only_the_run(build):
    run = build.judgement((build.case(),), (build.measurement(build.comparison(worst_ratio=5.0)),)).run
    assert judge(run).verdicts[0].status == "supported"
    assert judge(run, thresholds=Thresholds(allowed_ratio=4.0)).verdicts[0].status == "divergent"


def _no_code(build, count):
    text = "HIP error: invalid device function"
    outcome = Outcome("raised", error_type="RuntimeError", message=text, device_error=True)
    return tuple(dataclasses.replace(build.measurement(device=outcome), key=f"mm-{i}") for i in range(count))


def test_one_environment_error_in_most_cases_is_one_root_cause(build):
    cases = tuple(build.case(key=f"mm-{i}") for i in range(4))
    fine = dataclasses.replace(build.measurement(), key="mm-3")
    judgement = build.judgement(cases, (*_no_code(build, 3), fine), backend="hip")
    [cause] = judgement.root_causes
    assert cause.code == "SUP115"
    assert cause.message.startswith("one error stops 3 of the 4 cases that ran: the device raised RuntimeError")
    assert judgement.headline.startswith("One error stops 3 of the 4 cases that ran")


def test_the_same_error_in_half_of_the_cases_is_not_the_root_of_all(build):
    cases = tuple(build.case(key=f"mm-{i}") for i in range(4))
    fine = tuple(dataclasses.replace(build.measurement(), key=f"mm-{i}") for i in (2, 3))
    assert build.judgement(cases, (*_no_code(build, 2), *fine), backend="hip").root_causes == ()


def test_judging_twice_gives_the_same_judgement(build):
    run = build.judgement((build.case(),), (build.measurement(),)).run
    assert judge(run) == judge(run)


def test_rules_of_the_whole_run_look_at_it_once_whatever_was_tried(build, monkeypatch):
    looked = []

    def counting(run, there, thresholds):
        looked.append(len(run.cases))
        return lambda case, measurement: iter([Finding("SPD404", "slow", "in float64")])

    monkeypatch.setattr("audit.rules.judge.RUN_RULES", (counting,))
    trials = tuple(
        Alternative(Trial("mm-0", name, name, Change(settings=())), build.measurement()) for name in ("a", "b", "c")
    )
    run = Run(build.header(), (build.case(),), {"mm-0": build.measurement()}, alternatives={"mm-0": trials})
    [verdict] = judge(run).verdicts
    assert looked == [1]
    assert [(row.name, row.status) for row in verdict.tried] == [("a", "slow"), ("b", "slow"), ("c", "slow")]
