"""What is to be tried in place of which case."""

from __future__ import annotations

import dataclasses

import pytest

from audit.knowledge.alternatives import load_alternatives
from audit.rules.judge import judge
from audit.rules.remedies import instruction, plan, preparation_s, trials
from audit.run_records import UNCHANGED, Alternative, Change, Run, Trial, Trying
from audit.schema import NOT_RECORDED, Measurement, Outcome, TensorSpec, Timing

RAISED = Outcome("raised", "RuntimeError", "CUBLAS_STATUS_NOT_SUPPORTED")
STRIDED = TensorSpec((4, 8), (1, 4), "bfloat16", extent=32)


def names(build, case, outcome=RAISED, backend="sim"):
    """What is tried in place of one case."""
    judgement = build.judgement((case,), (build.measurement(key=case.key, device=outcome),), backend)
    return [trial.name for trial in trials(case, judgement.verdicts[0], backend)]


def run_of(build, *cases_and_outcomes, **fields):
    cases = tuple(case for case, _ in cases_and_outcomes)
    measured = {c.key: build.measurement(key=c.key, device=outcome) for c, outcome in cases_and_outcomes}
    return Run(build.header("sim", n_cases=len(cases)), cases, measured, **fields)


def test_the_case_as_it_was_comes_first_and_what_would_change_nothing_is_left_out(build):
    assert names(build, build.case("aten::mm.default", STRIDED)) == [UNCHANGED, "contiguous", "float32"]
    assert names(build, build.case("aten::mm.default", build.tensor(4, 4))) == [UNCHANGED]


def test_an_attention_tries_each_backend_that_its_device_has(build):
    case = build.case("aten::scaled_dot_product_attention.default", build.tensor(1, 2, 4, 8))
    assert names(build, case, backend="cuda") == [UNCHANGED, "sdpa_flash", "sdpa_efficient", "sdpa_cudnn", "sdpa_math"]
    fused = ["sdpa_flash", "sdpa_efficient", "sdpa_math"]
    assert names(build, case, backend="hip") == [UNCHANGED, *fused, "rocm_fa_ck"]


def test_a_path_that_was_taken_anyway_is_no_alternative(build):
    case = build.case("aten::scaled_dot_product_attention.default", build.tensor(1, 2, 4, 8))
    math = "aten::_scaled_dot_product_attention_math.default"
    [verdict] = build.judgement((case,), (build.measurement(key=case.key, device=RAISED),)).verdicts
    assert "sdpa_math" in [trial.name for trial in trials(case, verdict, "hip")]
    assert "sdpa_math" not in [trial.name for trial in trials(case, verdict, "hip", (math,))]


def test_a_matrix_product_tries_the_libraries_of_its_device(build):
    case = build.case("aten::mm.default", build.tensor(4, 4))
    assert names(build, case, backend="hip") == [UNCHANGED, "hipblaslt", "rocblas"]
    assert names(build, case, backend="cuda") == [UNCHANGED, "cublaslt"]


def test_a_convolution_tries_channels_last_and_no_library(build):
    case = build.case("aten::convolution.default", build.tensor(1, 2, 4, 8))
    assert names(build, case) == [UNCHANGED, "library_off", "channels_last"]


def test_what_the_program_has_set_is_taken_back_and_what_it_already_has_is_not_tried(build):
    off = (("torch.backends.cudnn.enabled", False),)
    case = build.case("aten::convolution.default", build.tensor(1, 2, 4, 8), settings=off)
    assert names(build, case) == [UNCHANGED, "torch_defaults", "channels_last"]


def test_settings_that_are_torch_defaults_do_not_hide_that_two_trials_are_one(build):
    off = (("torch.backends.cuda.enable_flash_sdp", False),)
    case = build.case("aten::scaled_dot_product_attention.default", build.tensor(1, 2, 4, 8), settings=off)
    assert names(build, case)[:3] == [UNCHANGED, "torch_defaults", "sdpa_flash"]


def test_a_view_is_not_laid_out_anew(build):
    assert names(build, build.case("aten::as_strided.default", STRIDED)) == [UNCHANGED]


def test_a_call_whose_arguments_were_not_recorded_is_not_made(build):
    assert names(build, build.case("aten::mm.default", STRIDED, NOT_RECORDED)) == []


@pytest.mark.parametrize(
    ("outcome", "is_tried"),
    [
        (RAISED, True),
        (Outcome("out_of_memory"), True),
        (Outcome("hung"), False),
        (Outcome("crashed", signal=11), False),
        (dataclasses.replace(RAISED, device_error=True), False),
        (Outcome("not_run"), False),
        (Outcome("ok"), False),
    ],
)
def test_what_hung_crashed_or_took_its_device_is_not_tried_again(build, outcome, is_tried):
    case = build.case("aten::mm.default", STRIDED)
    planned = plan(judge(run_of(build, (case, outcome))), 20)
    assert [found for found, _ in planned] == ([case] if is_tried else [])


def test_the_dearest_cases_come_first_and_the_others_are_left_out(build):
    cases = [build.case("aten::mm.default", STRIDED, key=f"mm-{n}", n_calls=n) for n in (1, 3, 2)]
    judgement = judge(run_of(build, *((case, RAISED) for case in cases)))
    assert [case.key for case, _ in plan(judgement, 2)] == ["mm-3", "mm-2"]


def test_what_was_tried_is_not_tried_again_nor_a_case_whose_trial_has_no_end(build):
    case, other = (build.case("aten::mm.default", STRIDED, key=key) for key in ("mm-0", "mm-1"))
    trial = Trial("mm-0", "contiguous", "", Change(layout="contiguous"))
    done = {"mm-0": (Alternative(trial, build.measurement()),)}
    run = run_of(
        build, (case, RAISED), (other, RAISED), alternatives=done, trying=frozenset({Trying("mm-1", "float32")})
    )
    [(planned, left)] = plan(judge(run), 20)
    assert (planned.key, [trial.name for trial in left]) == ("mm-0", [UNCHANGED, "float32"])


def test_nothing_more_is_tried_in_a_run_where_an_alternative_hung(build):
    case, other = (build.case("aten::mm.default", STRIDED, key=key) for key in ("mm-0", "mm-1"))
    hung = build.measurement(device=Outcome("hung"))
    done = {"mm-0": (Alternative(Trial("mm-0", "contiguous", "", Change(layout="contiguous")), hung),)}
    assert plan(judge(run_of(build, (case, RAISED), (other, RAISED), alternatives=done)), 20) == []


def test_a_reference_is_expected_to_take_five_times_its_own_run(build):
    measured = build.measurement(reference_time=Timing(2e6, 0.0, 1))
    assert preparation_s(measured) == 10.0
    assert preparation_s(Measurement("mm-0", Outcome("ok"), Outcome("ok"))) == 0.0


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (Change(layout="contiguous"), "make the inputs contiguous: x.contiguous()"),
        (Change(dtype="float32"), "compute it in float32"),
        (Change(settings=()), "torch.backends.cudnn.enabled = True"),
        (
            Change(settings=(("torch.backends.cudnn.enabled", False), ("torch.use_deterministic_algorithms", True))),
            "torch.use_deterministic_algorithms(True)",
        ),
        (Change(settings=(("torch.backends.cudnn.enabled", False), ("import os", True))), ""),
    ],
)
def test_an_instruction_is_what_a_program_has_to_write(build, change, line):
    assert instruction(change, build.case(settings=(("torch.backends.cudnn.enabled", False),))) == line


def test_names_of_alternatives_are_unique_and_each_changes_one_kind_of_thing():
    table = load_alternatives()
    assert len({kind.name for kind in table}) == len(table)
    for kind in table:
        assert bool(kind.settings) + (kind.change.layout is not None) + (kind.change.dtype is not None) == 1
