"""SPD405: the times of another device, brought to the limits of this one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.rules.judge import judge
from audit.run_records import Run
from audit.schema import Ceilings, DeviceInfo, DeviceTimes, Rate, Source, TensorSpec, Timing

FAST = Ceilings(Rate(4000.0, 1.0, 9), {"float32": Rate(100.0, 1.0, 9)}, Rate(4.0, 0.1, 9))
HALF = Ceilings(Rate(2000.0, 1.0, 9), {"float32": Rate(50.0, 1.0, 9)}, Rate(4.0, 0.1, 9))
H100 = DeviceInfo("cuda", "NVIDIA H100", "sm_90")
SPEC = TensorSpec((2048, 2048), (2048, 1), "float32")


def _there(us=100.0, device=H100, ceilings=FAST, iqr_us=1.0):
    evidence = "stand-in" if device.backend == "cuda" else "measured"
    return DeviceTimes(device, evidence, {}, {"exp-0": Timing(us, iqr_us, 20)}, ceilings)


def _findings(build, there, us, ceilings=HALF, backend="hip", case=None, iqr_us=1.0):
    header = build.header(backend, ceilings=ceilings, elsewhere=there)
    case = case or build.case("aten::exp.default", SPEC, key="exp-0", n_calls=10)
    measured = build.measurement(key="exp-0", device_time=Timing(us, iqr_us, 20))
    [verdict] = judge(Run(header, (case,), {"exp-0": measured})).verdicts
    return [finding for finding in verdict.findings if finding.code == "SPD405"]


def test_far_beyond_what_the_limits_explain_is_slow_with_its_cost(build):
    [finding] = _findings(build, _there(), us=1000.0)
    assert finding.status == "slow"
    assert finding.message == (
        "takes 1 ms; 100 µs on NVIDIA H100 (stand-in), 200 µs at this device's limits: 5 times that; it costs 8 ms "
        "over 10 calls"
    )


def test_what_the_limits_and_both_spreads_explain_is_not_slow(build):
    # 2.5 x (100 + 1) x 2 and two launches of 4 us are allowed.
    assert _findings(build, _there(), us=514.0, iqr_us=1.0) == []
    assert len(_findings(build, _there(), us=514.1, iqr_us=1.0)) == 1
    assert _findings(build, _there(iqr_us=100.0), us=1000.0, iqr_us=1.0) == []


def test_an_earlier_run_on_the_same_device_is_a_baseline(build):
    here = build.header("hip").device
    assert _findings(build, _there(device=here, ceilings=None), us=159.0, ceilings=None) == []
    [finding] = _findings(build, _there(device=here), us=180.0)
    assert finding.message == (
        "takes 180 µs; 100 µs on AMD Instinct MI300X (measured): 1.8 times that; it costs 800 µs over 10 calls"
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"there": None},
        {"ceilings": None},  # measured there, datasheet here
        {"backend": "sim"},
        {"there": _there(us=0.0)},
    ],
    ids=["no other device", "limits of another kind", "simulated", "no time"],
)
def test_nothing_is_said_where_nothing_can_be_compared(build, changed):
    assert _findings(build, **({"there": _there(), "us": 1e6} | changed)) == []


def test_a_copy_from_the_host_is_bound_by_the_bus(build):
    case = build.case("aten::_to_copy.default", replace(SPEC, host=True), key="exp-0")
    assert _findings(build, _there(), us=1e6, case=case) == []


def test_another_run_beside_it_is_asked_by_kind_of_call(build):
    """Its keys are its own: layouts differ between devices."""
    case = build.case("aten::exp.default", SPEC, key="exp-0")
    turned = build.case("aten::exp.default", replace(SPEC, strides=(1, 2048)), key="exp-1")
    measured = build.measurement(key="exp-1", device_time=Timing(100.0, 1.0, 20))
    header = replace(build.header("cuda", ceilings=FAST), source=Source("script", "there.py"))
    other = Run(header, (turned,), {"exp-1": measured})
    ours = build.measurement(key="exp-0", device_time=Timing(2000.0, 1.0, 20))
    judgement = judge(Run(build.header("hip", ceilings=HALF), (case,), {"exp-0": ours}), other=other)
    [finding] = [finding for finding in judgement.verdicts[0].findings if finding.code == "SPD405"]
    assert finding.data["there_us"] == 100.0
    assert judgement.beside is not None
