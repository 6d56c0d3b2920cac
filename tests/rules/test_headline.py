"""The verdict in one sentence: what it may claim depends on the evidence."""

from __future__ import annotations

import dataclasses

import pytest

from audit.rules.judge import judge
from audit.run_records import PreflightCheck, RunEnd
from audit.schema import NotAudited, Outcome


def _judgement(build, backend, **fields):
    cases = tuple(build.case(f"aten::{op}.default", key=op) for op in ("mm", "add", "exp", "item"))
    measured = tuple(
        dataclasses.replace(measurement, key=key)
        for key, measurement in (
            ("mm", build.measurement()),
            ("add", build.measurement(build.comparison(worst_ratio=99.0))),
            ("exp", build.measurement(device=Outcome("raised", message="no"))),
            ("item", build.measurement(device=Outcome("out_of_memory"))),
        )
    )
    return build.judgement(cases, measured, backend=backend, **fields)


def test_a_measured_run_states_support_with_denominator_and_inconclusive_share(build):
    assert _judgement(build, "hip").headline == (
        "On AMD Instinct MI300X (gfx942) 1 of 4 ops are supported (25 % of ops; 25 % of ops inconclusive); "
        "1 op unsupported, 1 op divergent."
    )


@pytest.mark.parametrize(
    ("backend", "beginning"),
    [
        ("cuda", "not measured on AMD: NVIDIA H100 (sm_90) stood in; findings in 2 of 4 ops"),
        ("sim", "not measured on AMD: sim (sim) ran in place of a GPU; findings in 2 of 4 ops"),
        ("cpu", "not measured on AMD: cpu (cpu) ran in place of a GPU; findings in 2 of 4 ops"),
        ("none", "not measured on AMD: predicted for gfx942 from the knowledge base; findings in 0 of 4 ops"),
    ],
)
def test_any_other_run_says_so_first_and_gives_no_percentage(build, backend, beginning):
    headline = _judgement(build, backend).headline
    assert headline.startswith(beginning)
    assert "%" not in headline
    assert "supported" not in headline.replace("unsupported", "")


def test_a_failed_preflight_comes_first(build):
    checks = (
        PreflightCheck("rocm version", "warning", "versions differ", "install one"),
        PreflightCheck("arch", "failed", "this torch has no code for gfx942", "install another"),
        PreflightCheck("disk", "ok", "9 GiB free"),
    )
    judgement = _judgement(build, "hip", preflight=checks)
    assert [(cause.code, cause.status) for cause in judgement.root_causes] == [
        ("SUP110", "unsupported"),
        ("SUP113", "supported"),
    ]
    assert judgement.headline.startswith("This torch has no code for gfx942. On AMD Instinct MI300X")
    assert "versions differ" not in judgement.headline


def test_an_audit_that_was_interrupted_after_its_last_case_says_so(build):
    end = RunEnd(False, "interrupted while alternatives were tried")
    judged = build.judgement((build.case(),), (build.measurement(),), backend="hip", end=end)
    assert judged.headline.endswith("Partial: interrupted while alternatives were tried.")
    whole = build.judgement(
        (build.case(),), (build.measurement(),), backend="hip", end=RunEnd(True, "the device was lost")
    )
    assert "Partial" not in whole.headline


def test_a_partial_run_says_what_is_missing_and_why(build):
    cases = tuple(build.case(key=f"mm-{i}") for i in range(3))
    judgement = build.judgement(cases, (build.measurement(),), "hip", end=RunEnd(False, "the time budget was spent"))
    assert judgement.headline.endswith("Partial: 2 of 3 cases not measured (the time budget was spent).")


def test_a_run_without_cases_claims_nothing(build):
    assert build.judgement((), backend="hip").headline == "No op was recorded, so nothing was judged."
    assert build.judgement((), backend="sim").headline == (
        "not measured on AMD: no op was recorded, so nothing was judged."
    )


def _headline(build, *not_audited, n_recorded=0, cases=()):
    judgement = build.judgement(cases, tuple(build.measurement() for _ in cases), "hip")
    header = dataclasses.replace(judgement.run.header, not_audited=not_audited, n_recorded=n_recorded)
    return judge(dataclasses.replace(judgement.run, header=header)).headline


def test_what_is_not_audited_is_named_and_counted_after_the_verdict(build):
    headline = _headline(
        build,
        NotAudited("aten::mm.default", "not strided tensor (sparse_csr): why", 7),
        NotAudited("aten::sum.default", "not strided tensor (sparse_csr): why", 2),
        NotAudited("c10d::allreduce_.default", "collective: needs the other ranks", 1),
        NotAudited("Triton kernel add in Net.block", "launched past the dispatcher: it is not audited", 0, n_seen=12),
        NotAudited("flash_attn", "could not be imported here: what the program would run is not audited", 0, n_seen=1),
        NotAudited("profiler::_record_function_enter_new.default", "annotation for profilers", 99, computes=False),
        cases=(build.case(),),
    )
    assert headline == (
        "On AMD Instinct MI300X (gfx942) 1 of 1 ops are supported (100 % of ops; 0 % of ops inconclusive); "
        "no op with a finding. Not audited: Triton kernel add in Net.block (launched past the dispatcher, 12 times); "
        "flash_attn (could not be imported here); 9 calls of 2 ops (not strided tensor (sparse_csr)); "
        "1 call of c10d::allreduce_.default (collective)."
    )


def test_more_than_four_kinds_are_counted(build):
    kinds = [NotAudited(f"op{n}", f"reason {n}", n) for n in range(1, 8)]
    assert _headline(build, *kinds).endswith("4 calls of op4 (reason 4); 3 more (6 calls).")


def test_annotations_alone_are_not_mentioned(build):
    annotation = NotAudited("profiler::enter.default", "annotation", 5, computes=False)
    assert "Not audited" not in _headline(build, annotation, n_recorded=5, cases=(build.case(),))


def test_a_run_whose_every_call_is_without_a_case_claims_nothing(build):
    assert _headline(build, NotAudited("aten::mm.default", "not strided tensor", 3), n_recorded=3) == (
        "Nothing was judged: no case came of 3 recorded calls. Not audited: 3 calls of aten::mm.default "
        "(not strided tensor)."
    )


def test_an_op_of_one_device_is_a_root_cause_said_first(build):
    headline = _headline(build, NotAudited("aten::cudnn_rnn.default", "one device", 2, missed=True), n_recorded=2)
    assert headline.startswith(
        "Model.py was traced into ops that only this machine's device has (aten::cudnn_rnn.default)"
    )


def test_what_collectives_passed_stands_beside_their_reason():
    from audit.rules.not_audited import not_audited_sentence, shown_reason
    from audit.schema import NotAudited

    reason = "collective: needs the other ranks"
    item = NotAudited("c10d::allreduce_.default", reason, 12, nbytes=3 << 29, n_ranks=8)
    assert shown_reason(item) == "collective: needs the other ranks; 1.5 GiB in all, among 8 ranks"
    assert not_audited_sentence([item]) == ("Not audited: 12 calls of c10d::allreduce_.default (collective, 1.5 GiB).")
    assert shown_reason(NotAudited("c10d::barrier.default", reason)) == reason
