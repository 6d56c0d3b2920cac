"""Alternatives on the simulated device: what cures a planted fault, and what a crash or a hang under one leaves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from audit.replay.engine import ReplaySettings
from audit.replay.pool import Pool
from audit.run_records import Alternative, Change, Trial, Trying
from audit.schema import Case, Measurement

FAULTS = """
import os, torch
def strided(call):
    out = call.run(*call.args, **call.kwargs)
    return out if call.args[0].is_contiguous() else out + 1
def half(call):
    out = call.run(*call.args, **call.kwargs)
    if call.args[0].dtype == torch.bfloat16:
        out[0] += 3
    return out
def wrong(call):
    return call.run(*call.args, **call.kwargs) + 1
def fragile(call):
    if call.args[0].is_contiguous():
        os.abort()
    return call.run(*call.args, **call.kwargs)
def slow(call):
    if call.args[0].is_contiguous():
        call.sleep(60)
    return call.run(*call.args, **call.kwargs)
def coarse(call):
    cut = lambda x: (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
    return call.run(cut(call.args[0]), cut(call.args[1]))
FAULTS = {"aten::bmm.default": coarse, "aten::mm.default": strided, "aten::silu.default": half}
FAULTS |= {"aten::exp.default": fragile, "aten::cos.default": slow, "aten::miopen_convolution.default": wrong}
"""
CONTIGUOUS, FLOAT32 = Change(layout="contiguous"), Change(dtype="float32")


@pytest.fixture(scope="module")
def pool(fault_file) -> Iterator[Pool]:
    settings = ReplaySettings(device=fault_file(FAULTS), timing_budget_s=0.001, first_call_limit_s=2.5)
    with Pool(settings) as pool:
        yield pool


def tried(pool: Pool, case: Case, *changes: Change) -> list[Measurement]:
    """What each change gave; every alternative is announced first."""
    trials = tuple(Trial(case.key, f"{n}", f"change {n}", change) for n, change in enumerate(changes))
    events = list(pool.try_instead([(case, trials)]))
    found = [event for event in events if isinstance(event, Alternative)]
    assert events[::2] == [Trying(case.key, alternative.trial.name) for alternative in found]
    return [alternative.measurement for alternative in found]


def ratios(measurements: list[Measurement]) -> list[bool]:
    """Whether each is beyond what rounding explains."""
    return [max(c.worst_ratio for c in measurement.comparisons) > 8 for measurement in measurements]


def test_a_kernel_wrong_only_for_strided_inputs_is_right_for_contiguous_ones(pool, build):
    case = build.case("aten::mm.default", build.tensor([8, 16], strides=(1, 8)), build.tensor([16, 4], storage=1))
    assert ratios(tried(pool, case, Change(), CONTIGUOUS)) == [True, False]


def test_a_kernel_wrong_only_in_half_precision_is_right_in_float32_after_rounding(pool, build):
    case = build.case("aten::silu.default", build.tensor([64], "bfloat16"))
    as_it_was, in_float32 = tried(pool, case, Change(), FLOAT32)
    assert ratios([as_it_was, in_float32]) == [True, False]
    [comparison] = in_float32.comparisons
    assert comparison.actual.dtype == comparison.expected.dtype == "bfloat16"


def test_what_a_mechanism_explains_of_an_alternative_is_told(pool, build):
    """Else TF32, which the default settings of a convolution allow, would pass for a wrong answer of the cure."""
    case = build.case("aten::bmm.default", build.tensor([2, 8, 64]), build.tensor([2, 64, 4], storage=1))
    [alternative] = tried(pool, case, CONTIGUOUS)
    [comparison] = alternative.comparisons
    assert [found.mechanism for found in comparison.explanations] == ["tf32-operands"]
    assert comparison.explanations[0].left_fraction < 0.1


def test_attention_held_to_math_takes_the_fused_path_under_the_default_settings(pool, build):
    query, key, value = (build.tensor([2, 4, 8, 16], "bfloat16", storage=n) for n in range(3))
    case = build.case("aten::scaled_dot_product_attention.default", query, key, value)
    math = Change(settings=tuple((f"torch.backends.cuda.enable_{n}_sdp", False) for n in ("flash", "mem_efficient")))
    forced, free = tried(pool, case, math, Change(settings=()))
    assert "aten::_scaled_dot_product_attention_math.default" in forced.path.chosen_ops
    assert "aten::_scaled_dot_product_flash_attention.default" in free.path.chosen_ops
    assert (forced.path.refusals, free.path.refusals) == ((), ())  # it was the program that refused


def test_a_library_that_is_wrong_is_passed_over_where_it_is_switched_off(pool, build):
    image, weight = build.tensor([1, 2, 4, 4]), build.tensor([2, 2, 3, 3], storage=1)
    arguments = (None, (1, 1), (0, 0), (1, 1), False, (0, 0), 1)
    case = build.case("aten::convolution.default", image, weight, *arguments)
    off = Change(settings=(("torch.backends.cudnn.enabled", False),))
    assert ratios(tried(pool, case, Change(), off)) == [True, False]


def test_a_library_that_this_torch_lacks_is_an_answer_and_the_next_alternative_runs(pool, build):
    case = build.case("aten::mm.default", build.tensor([4, 4]), build.tensor([4, 4], storage=1))
    lacking = Change(settings=(("torch.backends.cuda.preferred_linalg_library", "magma"),))
    absent, healthy = tried(pool, case, lacking, Change())
    assert (absent.device.kind, healthy.device.kind) == ("not_run", "ok")
    assert "MAGMA" in absent.device.message


def test_a_crash_under_an_alternative_is_recorded_once_and_the_next_one_runs(pool, build):
    case = build.case("aten::exp.default", build.tensor([4, 6], strides=(1, 4)))
    crashed, healthy = tried(pool, case, CONTIGUOUS, Change())
    assert (crashed.device.kind, crashed.device.confirmed, crashed.comparisons) == ("crashed", None, ())
    assert ratios([healthy]) == [False]


def test_nothing_is_tried_after_an_alternative_that_hung(pool, build):
    case = build.case("aten::cos.default", build.tensor([4, 6], strides=(1, 4)))
    [hung] = tried(pool, case, CONTIGUOUS, Change())
    assert (hung.device.kind, hung.device.stage) == ("hung", "first call")


def test_nothing_is_tried_once_it_is_enough(pool, build):
    case = build.case("aten::sin.default", build.tensor([4]))
    assert list(pool.try_instead([(case, (Trial(case.key, "0", "", Change()),))], lambda: True)) == []
