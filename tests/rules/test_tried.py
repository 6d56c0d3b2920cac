"""FBK320: what alternatives gave, and what is said of the one that helps most."""

from __future__ import annotations

import pytest

from audit.comparison import Explanation
from audit.rules.judge import judge
from audit.run_records import UNCHANGED, Alternative, Change, Run, Trial, Trying
from audit.schema import Outcome, Path, Timing

SDPA = "aten::scaled_dot_product_attention.default"
MATH = Path(True, True, ("aten::_scaled_dot_product_attention_math.default",))
FLASH = Path(True, True, ("aten::_scaled_dot_product_flash_attention.default",))
FORCED = (("torch.backends.cuda.enable_flash_sdp", False),)
CONTIGUOUS, DEFAULTS = Change(layout="contiguous"), Change(settings=())


def verdict_of(build, case, before, *tried, backend="sim", arch=None):
    """The verdict of a case after alternatives: (name, what, change, measurement)."""
    alternatives = tuple(Alternative(Trial(case.key, name, what, change), found) for name, what, change, found in tried)
    run = Run(build.header(backend, arch), (case,), {case.key: before}, alternatives={case.key: alternatives})
    [verdict] = judge(run).verdicts
    return verdict


def note_of(verdict):
    [note] = [finding for finding in verdict.findings if finding.code == "FBK320"]
    return note


def attention(build, path, us, gib):
    return build.measurement(path=path, device_time=Timing(us, us / 100, 20), peak_bytes=int(gib * (1 << 30)))


def test_the_cost_of_a_choice_of_the_program_is_told_in_time_and_memory(build):
    case = build.case(SDPA, settings=FORCED)
    math, flash = attention(build, MATH, 3100.0, 2.1), attention(build, FLASH, 400.0, 0.3)
    verdict = verdict_of(
        build, case, math, (UNCHANGED, "nothing changed", Change(), math),
        ("torch_defaults", "torch's default settings", DEFAULTS, flash), backend="cuda",
    )  # fmt: skip
    note = note_of(verdict)
    assert (verdict.status, note.status) == ("falling_back", "supported")
    assert note.message == (
        "1 alternative tried; with torch's default settings it is supported: 400 µs instead of 3.1 ms, "
        "307.2 MiB instead of 2.1 GiB of memory"
    )
    assert note.data["remedy"] == "torch.backends.cuda.enable_flash_sdp(True)"
    assert (note.data["device_us_with"], note.data["device_us_without"]) == (400.0, 3100.0)
    assert [(row.name, row.effect) for row in verdict.tried] == [(UNCHANGED, "as before"), ("torch_defaults", "cures")]


def test_another_path_that_takes_longer_cures_no_fallback(build):
    case = build.case(SDPA, settings=FORCED)
    math, flash = attention(build, MATH, 300.0, 1), attention(build, FLASH, 400.0, 1)
    tried = [(UNCHANGED, "", Change(), math), ("torch_defaults", "torch's default settings", DEFAULTS, flash)]
    assert verdict_of(build, case, math, *tried, backend="cuda").tried[1].effect == "no help"
    assert verdict_of(build, case, math, *tried, backend="sim").tried[1].effect == "cures"  # whose times mean nothing


@pytest.mark.parametrize(("us", "effect"), [(2500.0, "faster"), (3050.0, "no help"), (3100.0, "no help")])
def test_the_same_status_in_less_time_is_faster_where_it_is_beyond_the_noise(build, us, effect):
    math = attention(build, MATH, 3100.0, 2)
    tried = [
        (UNCHANGED, "", Change(), math),
        ("contiguous", "inputs contiguous", CONTIGUOUS, attention(build, MATH, us, 2)),
    ]
    assert verdict_of(build, build.case(SDPA), math, *tried, backend="cuda").tried[1].effect == effect


def test_the_simulated_device_has_no_times_to_tell(build):
    wrong, right = build.measurement(build.comparison(worst_ratio=99.0)), attention(build, build.watched, 7.0, 1)
    verdict = verdict_of(
        build,
        build.case(),
        wrong,
        (UNCHANGED, "", Change(), wrong),
        ("contiguous", "inputs contiguous", CONTIGUOUS, right),
    )
    assert note_of(verdict).message == "1 alternative tried; with inputs contiguous it is supported"
    assert [row.device_us for row in verdict.tried] == [None, None]
    assert [row.worst_ratio for row in verdict.tried] == [99.0, 0.0]


def test_a_finding_that_does_not_recur_is_told_and_cured_by_nothing(build):
    wrong, right = build.measurement(build.comparison(worst_ratio=99.0)), build.measurement()
    tried = [(UNCHANGED, "", Change(), right), ("contiguous", "inputs contiguous", CONTIGUOUS, right)]
    verdict = verdict_of(build, build.case(), wrong, *tried)
    assert verdict.status == "divergent"
    assert [row.effect for row in verdict.tried] == ["did not recur", "no help"]
    assert "run again as it was, it is supported: the finding did not recur" in note_of(verdict).message


def test_a_cure_whose_numbers_are_those_of_a_known_behaviour_is_one_and_says_so(build):
    case = build.case("aten::convolution.default", settings=(("torch.backends.cudnn.enabled", False),))
    wrong = build.measurement(build.comparison(worst_ratio=99.0))
    tf32 = build.comparison(worst_ratio=99.0, explanations=(Explanation("tf32-operands", 16, 0, 0.01, 1.0),))
    tried = [(UNCHANGED, "", Change(), wrong), ("torch_defaults", "defaults", DEFAULTS, build.measurement(tf32))]
    verdict = verdict_of(build, case, wrong, *tried, backend="cuda", arch="sm_90")
    assert [(row.effect, row.status) for row in verdict.tried[1:]] == [("cures", "supported")]
    assert note_of(verdict).message.startswith(
        "1 alternative tried; with defaults it is supported (TF32 rounds the operands of fp32 convolutions"
    )
    elsewhere = verdict_of(build, case, wrong, *tried, backend="hip", arch="gfx942")
    assert [(row.effect, row.status) for row in elsewhere.tried[1:]] == [("no help", "divergent")]


def test_what_is_not_available_or_crashed_is_no_help_and_the_cure_stands_before_it(build):
    wrong = build.measurement(build.comparison(worst_ratio=99.0))
    verdict = verdict_of(
        build, build.case(), wrong, (UNCHANGED, "", Change(), wrong),
        ("rocblas", "rocBLAS preferred", DEFAULTS, build.measurement(device=Outcome("not_run", message="no rocBLAS"))),
        ("deterministic", "deterministic mode", DEFAULTS, build.measurement(device=Outcome("crashed", signal=6))),
        ("contiguous", "inputs contiguous", CONTIGUOUS, build.measurement()),
    )  # fmt: skip
    shown = [(row.name, row.effect, row.status) for row in verdict.tried[1:]]
    assert shown[0] == ("contiguous", "cures", "supported")
    assert shown[1] == ("deterministic", "no help", "unsupported")
    assert shown[2][:2] == ("rocblas", "not available")
    assert note_of(verdict).message.endswith("with inputs contiguous it is supported; no help: deterministic mode")


def test_a_case_that_ran_out_of_memory_is_cured_by_what_runs(build):
    full = build.measurement(device=Outcome("out_of_memory", message="tried to allocate 400 GiB"))
    verdict = verdict_of(
        build, build.case(SDPA, settings=FORCED), full, ("torch_defaults", "defaults", DEFAULTS, build.measurement())
    )
    assert (verdict.status, verdict.tried[0].effect) == ("inconclusive", "cures")


def test_an_alternative_that_has_no_end_is_told(build):
    begun = frozenset({Trying("mm-0", "sdpa_flash")})
    [verdict] = judge(Run(build.header(), (build.case(),), {"mm-0": build.measurement()}, trying=begun)).verdicts
    assert note_of(verdict).message == (
        "0 alternatives tried; the audit or the machine ended while sdpa_flash was tried, which is not done again"
    )


def test_a_case_without_alternatives_has_no_note(build):
    [verdict] = build.judgement((build.case(),), (build.measurement(),)).verdicts
    assert (verdict.tried, verdict.findings) == ((), ())
