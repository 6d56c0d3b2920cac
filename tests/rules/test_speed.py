"""SPD401, SPD402: against the CPU, and the first call."""

from __future__ import annotations

import pytest

from audit.schema import Named, TensorSpec, Timing


def _codes(build, device, reference, backend="hip", **case):
    measurement = build.measurement(device_time=device, reference_time=reference)
    return build.codes(measurement, build.case(**case), backend=backend)


def test_far_slower_than_the_cpu_is_slow_with_its_cost(build):
    measurement = build.measurement(device_time=Timing(3000.0, 10.0, 20), reference_time=Timing(1000.0, 10.0, 20))
    [finding] = build.findings(measurement, build.case(n_calls=50), backend="hip")
    assert (finding.code, finding.status) == ("SPD401", "slow")
    assert finding.message == "takes 3 ms on the device and 1 ms on the CPU, 3 times that; 100 ms over 50 calls"


@pytest.mark.parametrize("backend", ["sim", "cpu"])
def test_time_on_a_stand_in_without_a_gpu_is_never_judged(build, backend):
    assert _codes(build, Timing(9e6, 0.0, 5, first_us=90e6), Timing(1.0, 0.0, 5), backend) == []


def test_a_launch_bound_tiny_op_is_not_slow(build):
    assert _codes(build, Timing(199.0, 0.0, 20), Timing(1.0, 0.0, 20)) == []
    assert _codes(build, Timing(200.0, 0.0, 20), Timing(1.0, 0.0, 20)) == [("SPD401", "slow")]


def test_a_difference_within_the_noise_is_not_slow(build):
    assert _codes(build, Timing(2500.0, 600.0, 20), Timing(1000.0, 0.0, 20)) == []
    assert _codes(build, Timing(2500.0, 0.0, 20), Timing(1000.0, 300.0, 20)) == []
    assert _codes(build, Timing(2500.0, 100.0, 20), Timing(1000.0, 100.0, 20)) == [("SPD401", "slow")]


def test_twice_the_cpu_is_the_border(build):
    assert _codes(build, Timing(2000.0, 0.0, 20), Timing(1000.0, 0.0, 20)) == []
    assert _codes(build, Timing(2001.0, 0.0, 20), Timing(1000.0, 0.0, 20)) == [("SPD401", "slow")]


def test_without_a_reference_time_nothing_is_said(build):
    assert _codes(build, Timing(9e6, 0.0, 5), None) == []


@pytest.mark.parametrize(
    ("first_us", "expected"),
    [
        (1.9e6, []),
        (2.0e6, [("SPD402", "supported")]),
        (29e6, [("SPD402", "supported")]),
        (45e6, [("SPD402", "slow")]),
    ],
)
def test_a_first_call_of_seconds_is_a_note_and_of_a_search_is_slow(build, first_us, expected):
    assert _codes(build, Timing(50.0, 1.0, 20, first_us=first_us), Timing(50.0, 1.0, 20)) == expected


def test_a_copy_between_host_and_device_is_not_measured_by_the_cpus_own_copy(build):
    host = TensorSpec((4096,), (1,), "float32", host=True)
    on_device = TensorSpec((4096,), (1,), "float32")
    to_host = (("device", Named("device", "cpu")),)
    measurement = build.measurement(device_time=Timing(81_000.0, 0.0, 5), reference_time=Timing(17_000.0, 0.0, 5))

    def codes(*args, **fields):
        return build.codes(measurement, build.case("aten::_to_copy.default", *args, **fields), backend="cuda")

    assert codes(host) == []
    assert codes(on_device, kwargs=to_host) == []
    assert codes(on_device) == [("SPD401", "slow")]
