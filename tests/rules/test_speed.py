"""SPD401, SPD402: against the CPU, and the first call; SPD403: against the device's own rates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.schema import Ceilings, Kernel, Named, Path, Rate, TensorSpec, Timing, Values


def _codes(build, device, reference, backend="hip", **case):
    measurement = build.measurement(device_time=device, reference_time=reference)
    codes = build.codes(measurement, build.case(**case), backend=backend)
    return [(code, status) for code, status in codes if code != "SPD403"]


def test_far_slower_than_the_cpu_is_slow_with_its_cost(build):
    measurement = build.measurement(device_time=Timing(3000.0, 10.0, 20), reference_time=Timing(1000.0, 10.0, 20))
    finding = build.findings(measurement, build.case(n_calls=50), backend="hip")[0]
    assert (finding.code, finding.status) == ("SPD401", "slow")
    assert (
        finding.message == "takes 3 ms on the device and 1 ms on the CPU, 3 times that; it costs 100 ms over 50 calls"
    )


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


def test_one_call_of_a_recording_has_no_spread_and_is_not_judged(build):
    assert _codes(build, Timing(3000.0, 0.0, 1, total_us=3000.0), Timing(1000.0, 0.0, 20)) == []
    assert _codes(build, Timing(3000.0, 0.0, 1, first_us=3100.0), Timing(1000.0, 0.0, 20)) == [("SPD401", "slow")]
    product = build.case("aten::mm.default", LARGE, LARGE)
    once, twice = (build.measurement(device_time=Timing(9000.0, 0.0, n)) for n in (1, 2))
    assert build.findings(once, product, backend="hip") == []
    assert [finding.code for finding in build.findings(twice, product, backend="hip")] == ["SPD403"]


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


# --- against the device's own rates ------------------------------------------------------------------------------

CEILINGS = Ceilings(Rate(4000.0, 1.0, 9), {"bfloat16": Rate(600.0, 1.0, 9)}, Rate(4.0, 0.1, 9))
LARGE = TensorSpec((4096, 4096), (4096, 1), "bfloat16")


def _limit(build, us, op="aten::exp.default", args=(LARGE,), path=None, ceilings=CEILINGS, iqr_us=1.0, backend="hip"):
    """SPD403 of a call: exp of 4096 x 4096 in bf16 moves 64 MiB, 16.8 us; a quarter of that rate is expected."""
    path = path or build.watched
    made = build.fact(*args[0].sizes, dtype="bfloat16")
    output = build.comparison(expected=made, actual=made)
    measurement = build.measurement(output, device_time=Timing(us, iqr_us, 20), path=path)
    found = build.findings(measurement, build.case(op, *args, n_calls=3), backend=backend, ceilings=ceilings)
    return [finding for finding in found if finding.code == "SPD403"]


def test_far_below_the_rates_of_the_device_is_slow_with_its_cost(build):
    [finding] = _limit(build, 500.0)
    assert finding.status == "slow"
    assert finding.message == (
        "takes 500 µs; it moves 64.0 MiB, for which the device needs 16.8 µs at its rates as measured: 3.4 % of them, "
        "at least 25 % are expected of elementwise; that costs 1.45 ms over 3 calls"
    )
    assert finding.data["bound"] == "memory"


def test_a_product_is_held_to_the_arithmetic_of_its_dtype(build):
    [finding] = _limit(build, 2000.0, "aten::mm.default", (LARGE, LARGE))
    assert "it does 137 GFLOP, for which the device needs 229 µs" in finding.message
    assert _limit(build, 900.0, "aten::mm.default", (LARGE, LARGE)) == []


def test_what_is_expected_of_its_class_is_the_border(build):
    # 16.777 us / 0.25, and two launches of 4 us for the one kernel that there is at least.
    assert _limit(build, 75.1, iqr_us=0.0) == []
    assert len(_limit(build, 75.2, iqr_us=0.0)) == 1
    assert _limit(build, 175.1, iqr_us=100.0) == []


def test_a_call_that_lasts_less_than_the_start_of_kernels_is_not_judged(build):
    tiny = TensorSpec((16,), (1,), "bfloat16")
    assert _limit(build, 49.0, args=(tiny,)) == []
    assert len(_limit(build, 51.0, args=(tiny,))) == 1


@pytest.mark.parametrize("told", [0.0, -4.0, float("nan"), float("inf")])
def test_a_launch_that_no_device_has_is_taken_for_one_that_was_not_measured(build, told):
    ceilings = replace(CEILINGS, launch_us=Rate(told, 0.0, 9))
    # 16.777 us / 0.25, and two launches of 10 us.
    assert _limit(build, 87.0, iqr_us=0.0, ceilings=ceilings) == []
    assert len(_limit(build, 87.2, iqr_us=0.0, ceilings=ceilings)) == 1


def test_each_kernel_has_its_launches(build):
    path = Path(observed=True, complete=True, kernels=(Kernel("k", 400.0, 60),))
    assert _limit(build, 500.0, path=path) == []


def test_gaps_that_the_host_left_between_kernels_are_not_the_devices(build):
    path = Path(observed=True, complete=True, kernels=(Kernel("k", 20.0, 1),))
    assert _limit(build, 500.0, path=path) == []
    unsure = Path(observed=True, complete=False, kernels=(Kernel("k", 20.0, 1),))
    assert len(_limit(build, 500.0, path=unsure)) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"op": "aten::sort.default"},
        {"args": (TensorSpec((4096, 4096), (4096, 1), "bfloat16", host=True),), "op": "aten::_to_copy.default"},
        {"backend": "sim"},
        {"backend": "cuda", "ceilings": None, "us": 150.0},  # an H100's datasheet, of which half is expected
    ],
    ids=["no expectation", "from the host", "simulated", "by the datasheet"],
)
def test_what_is_not_judged_against_rates(build, changed):
    assert _limit(build, **({"us": 1e6} | changed)) == []


def test_a_copy_that_turns_its_operand_has_its_remedy(build):
    turned = TensorSpec((4096, 4096), (1, 4096), "bfloat16")
    [finding] = _limit(build, 200.0, "aten::clone.default", (turned,))
    assert "keep one memory format" in finding.data["remedy"]


def test_additions_in_one_place_are_told(build):
    rows = TensorSpec((1024, 1024), (1024, 1), "float32")
    index = TensorSpec((16384,), (1,), "int64")
    added = TensorSpec((16384, 1024), (1024, 1), "float32")
    case = build.case(
        "aten::index_add.default", rows, 0, index, added, values={1: Values(n_structured=16384, max_multiplicity=16384)}
    )
    found = build.findings(build.measurement(device_time=Timing(9e3, 1.0, 9)), case, backend="hip", ceilings=CEILINGS)
    [finding] = [finding for finding in found if finding.code == "SPD403"]
    assert finding.message.endswith("; up to 16,384 of its indices name one place")
