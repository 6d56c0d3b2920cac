"""NUM201..206, NUM211: outputs against the reference."""

from __future__ import annotations

import dataclasses

import pytest

from audit.rules.accuracy import count_beyond
from audit.rules.thresholds import Thresholds
from audit.rules.wording import element


def test_an_output_within_the_allowance_is_supported_without_a_word(build):
    assert build.codes(build.measurement(build.comparison(worst_ratio=7.9))) == []


def test_a_ratio_at_the_allowance_passes_and_one_above_it_does_not(build):
    assert build.codes(build.measurement(build.comparison(worst_ratio=8.0))) == []
    assert build.codes(build.measurement(build.comparison(worst_ratio=8.0001))) == [("NUM201", "divergent")]


def test_an_error_is_told_with_place_allowance_and_count(build):
    comparison = build.comparison(
        worst_ratio=100.0,
        ratio_counts=(14, 13, 12, 12, 5, 4, 3),
        worst_index=(0, 7),
        worst_actual="1.031",
        worst_expected="1.0",
        noise=2.0e-4,
        eps=1.0e-4,
        n_elements=4096,
        expected=build.fact(64, 64),
        actual=build.fact(64, 64),
    )
    [finding] = build.findings(build.measurement(comparison))
    assert finding.message == (
        "output 0 is off by 0.03 from fp64 where 0.0024 is allowed, 8 x (noise 0.0002 + eps 0.0001 x |expected|); "
        "at [0, 7]: got 1.031, expected 1; 12 of 4096 elements are beyond"
    )
    assert finding.data["allowed"] == pytest.approx(2.4e-3)
    assert finding.data["n_beyond"] == 12


def test_without_an_fp64_form_both_errors_add_up_to_twice_the_allowance(build):
    within = build.comparison(worst_ratio=15.0, reference="same-dtype")
    beyond = build.comparison(worst_ratio=17.0, reference="same-dtype", ratio_counts=(1, 1, 1, 1, 1))
    assert build.codes(build.measurement(within)) == []
    [finding] = build.findings(build.measurement(beyond))
    assert "the same-dtype CPU run" in finding.message
    assert finding.data["allowed_ratio"] == 16.0


def test_another_threshold_judges_the_same_measurement_otherwise(build):
    measurement = build.measurement(build.comparison(worst_ratio=6.0, ratio_counts=(3, 2, 1)))
    assert build.codes(measurement) == []
    assert build.codes(measurement, thresholds=Thresholds(allowed_ratio=4.0)) == [("NUM201", "divergent")]


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [(8.0, (3, "")), (16.0, (2, "")), (6.0, (3, "at least ")), (1.0, (9, "")), (1024.0, (1, "at least "))],
)
def test_elements_beyond_are_counted_exactly_at_powers_of_two(build, allowed, expected):
    assert count_beyond(build.comparison(ratio_counts=(9, 7, 5, 3, 2)), allowed) == expected


def test_an_infinite_ratio_from_a_floor_of_zero_is_beyond(build):
    comparison = build.comparison(
        worst_ratio=float("inf"), max_abs_error=0.5, worst_index=(1, 1), worst_actual="0.5", worst_expected="0.0"
    )
    [finding] = build.findings(build.measurement(comparison))
    assert "off by 0.5 from fp64" in finding.message
    assert "at [1, 1]: got 0.5, expected 0;" in finding.message


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1.7534688711166382", "1.75346887"),
        ("9007199254740993", "9007199254740993"),
        ("-12", "-12"),
        ("inf", "inf"),
        ("True", "True"),
        ("(1+2j)", "(1+2j)"),
        ("", ""),
    ],
)
def test_elements_are_shown_with_nine_digits_and_integers_whole(text, shown):
    assert element(text) == shown


def test_a_nan_where_none_belongs_and_a_missing_inf_are_told_apart(build):
    measurement = build.measurement(
        build.comparison(n_nan_mismatch=3, worst_index=(2, 0), worst_actual="nan", worst_expected="1.5"),
        build.comparison(n_inf_mismatch=1),
    )
    nan, inf = build.findings(measurement)
    assert (nan.code, inf.code) == ("NUM202", "NUM203")
    assert "3 of 16 elements; at [2, 0]: got nan, expected 1.5" in nan.message


def test_one_wrong_integer_is_divergent(build):
    comparison = build.comparison("exact", n_different=1, worst_index=(3, 3), worst_actual="7", worst_expected="8")
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status) == ("NUM204", "divergent")
    assert "differs in 1 of 16 elements; at [3, 3]: got 7, expected 8" in finding.message


def test_float_elements_that_differ_are_no_finding_under_the_numeric_standard(build):
    assert build.codes(build.measurement(build.comparison(n_different=16, worst_ratio=1.0))) == []


@pytest.mark.parametrize(
    ("sizes", "dtype", "message"),
    [
        ((4, 5), "float32", "output 0 is float32[4, 5], expected float32[4, 4]"),
        ((4, 4), "float64", "output 0 is float64[4, 4], expected float32[4, 4]"),
    ],
)
def test_a_wrong_shape_or_dtype_is_divergent(build, sizes, dtype, message):
    comparison = build.comparison(actual=build.fact(*sizes, dtype=dtype), n_elements=0, reference="")
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status, finding.message) == ("NUM205", "divergent", message)


def test_an_output_that_only_one_side_returns_is_divergent(build):
    missing = build.comparison(actual=None, n_elements=0)
    extra = build.comparison(expected=None, n_elements=0)
    assert [f.message for f in build.findings(build.measurement(missing, extra))] == [
        "the reference returns output 0 and the device does not",
        "the device returns output 0 and the reference does not",
    ]


def test_another_stride_is_a_note(build):
    comparison = build.comparison(actual=build.fact(4, 4, strides=(1, 4)))
    assert build.codes(build.measurement(comparison)) == [("NUM206", "supported")]


@pytest.mark.parametrize(
    ("sizes", "cpu", "device"), [((1, 4), (4, 1), (99, 1)), ((0, 4), (4, 1), (1, 0)), ((), (), ())]
)
def test_strides_that_place_no_element_do_not_count(build, sizes, cpu, device):
    comparison = build.comparison(
        expected=build.fact(*sizes, strides=cpu), actual=build.fact(*sizes, strides=device), n_elements=0
    )
    assert build.codes(build.measurement(comparison)) == []


def test_random_outputs_are_noted_as_not_compared(build):
    comparison = build.comparison("metadata", why="a random op", reference="")
    [finding] = build.findings(build.measurement(comparison))
    assert (finding.code, finding.status) == ("NUM211", "supported")
    assert finding.message == "output 0: only shape, dtype and stride were compared: a random op"


def test_numbers_of_an_op_whose_inputs_were_damaged_are_not_held_against_it(build):
    measurement = dataclasses.replace(build.measurement(build.comparison(worst_ratio=1e6)), n_damaged_inputs=1)
    [finding] = build.findings(measurement)
    assert (finding.code, finding.status) == ("NUM210", "divergent")
    assert "the copy's fault" in finding.message


def test_an_output_that_is_all_over_coarser_than_one_rounding_is_divergent(build):
    coarse = build.comparison(worst_ratio=3.4, rms_error=0.33, cpu_rms_error=0.054, n_elements=1600, rounded_once=True)
    [finding] = build.findings(build.measurement(coarse))
    assert (finding.code, finding.status) == ("NUM213", "divergent")
    assert finding.message == (
        "output 0 is coarser than its dtype: the rms error 0.33 is 6.1 times that of one rounding (0.054, the CPU's), "
        "allowed 5; each of 1600 elements is within its own allowance"
    )


def test_of_ops_that_round_more_than_once_and_of_few_elements_that_is_not_asked(build):
    several = build.comparison(worst_ratio=3.4, rms_error=0.33, cpu_rms_error=0.054, n_elements=1600)
    few = build.comparison(worst_ratio=3.4, rms_error=0.33, cpu_rms_error=0.054, n_elements=9, rounded_once=True)
    assert build.codes(build.measurement(several)) == []
    assert build.codes(build.measurement(few)) == []


def test_a_cpu_that_contradicts_itself_accuses_nobody(build):
    doubtful = {"third": "torch's decomposition", "third_ratio": 0.5}
    measurement = build.measurement(build.comparison(worst_ratio=100.0, ratio_counts=(1,) * 7, **doubtful))
    [finding] = build.findings(measurement)
    assert (finding.code, finding.status) == ("INC914", "inconclusive")
    assert "computed by torch's decomposition it agrees with the device" in finding.message
    exact = build.measurement(build.comparison("exact", n_different=3, third="its parts", third_n_different=0))
    assert build.codes(exact) == [("INC914", "inconclusive")]


def test_a_third_way_that_agrees_with_the_cpu_leaves_the_finding(build):
    told = {"third": "torch's decomposition", "third_ratio": 90.0}
    assert build.codes(build.measurement(build.comparison(worst_ratio=100.0, ratio_counts=(1,) * 7, **told))) == [
        ("NUM201", "divergent")
    ]
    exact = build.measurement(build.comparison("exact", n_different=3, third="its parts", third_n_different=1))
    assert build.codes(exact) == [("NUM204", "divergent")]


def test_double_precision_is_held_like_a_reference_of_its_own_dtype(build):
    fact = build.fact(4, 4, dtype="float64")
    close, far = ({"worst_ratio": ratio, "ratio_counts": (1,) * 6} for ratio in (15.9, 16.1))
    assert build.codes(build.measurement(build.comparison(expected=fact, actual=fact, **close))) == []
    assert build.codes(build.measurement(build.comparison(expected=fact, actual=fact, **far))) == [
        ("NUM201", "divergent")
    ]
