"""INC901..909: what the audit cannot say, and when it says so."""

from __future__ import annotations

import pytest

from audit.schema import Measurement, Outcome

OK, NOT_RUN = Outcome("ok"), Outcome("not_run", message="the reference forbids it")


@pytest.mark.parametrize(
    ("reference", "device", "code"),
    [
        (Outcome("raised", error_type="IndexError", message="index out of range"), NOT_RUN, "INC901"),
        (Outcome("raised", missing_kernel=True, message="no kernel"), OK, "INC902"),
        (Outcome("out_of_memory", message="host"), NOT_RUN, "INC903"),
        (OK, Outcome("out_of_memory", message="HIP out of memory"), "INC903"),
        (OK, Outcome("not_run", message="the device was lost"), "INC904"),
        (OK, Outcome("not_run", message="the time budget was spent"), "INC905"),
        (OK, Outcome("not_run", error_type="bug", message="the audit itself failed: KeyError"), "INC906"),
        (Outcome("not_run", error_type="InputError", message="no values"), Outcome("not_run"), "INC906"),
        (Outcome("crashed", signal=11), NOT_RUN, "INC907"),
        (Outcome("hung", limit_s=600.0), NOT_RUN, "INC907"),
    ],
)
def test_each_reason_has_its_code_and_is_given_once(build, reference, device, code):
    measurement = build.measurement(build.comparison("metadata"), reference=reference, device=device)
    found = [f for f in build.findings(measurement) if f.status == "inconclusive"]
    assert [f.code for f in found] == [code]


def test_an_invalid_input_shows_what_the_cpu_said(build):
    reference = Outcome("raised", error_type="IndexError", message="index 9 is out of bounds")
    [finding] = build.findings(build.measurement(reference=reference, device=NOT_RUN))
    assert finding.message == "invalid input: the CPU raised IndexError: index 9 is out of bounds"


def test_without_a_cpu_kernel_the_device_is_still_judged_for_raising(build):
    reference = Outcome("raised", missing_kernel=True, message="no CPU kernel")
    measurement = build.measurement(reference=reference, device=Outcome("raised", message="no"))
    assert build.codes(measurement) == [("SUP101", "unsupported"), ("INC902", "inconclusive")]


def test_a_lost_device_is_told_also_where_the_cpu_has_no_kernel(build):
    reference = Outcome("raised", missing_kernel=True, message="no CPU kernel")
    measurement = build.measurement(reference=reference, device=Outcome("not_run", message="device lost"))
    assert build.codes(measurement) == [("INC902", "inconclusive"), ("INC904", "inconclusive")]


def test_an_op_that_left_nothing_to_compare_is_not_called_supported(build):
    nothing = Measurement("mm-0", OK, OK, path=build.watched, notes=("the outputs were not compared: KeyError",))
    [finding] = build.findings(nothing)
    assert (finding.code, finding.status) == ("INC909", "inconclusive")
    assert finding.message.endswith("nothing was compared; the outputs were not compared: KeyError")
    assert build.codes(nothing, build.case("aten::_assert_async.msg")) == []
    assert build.codes(nothing, build.case("aten::_linalg_check_errors.default")) == []


def test_an_output_without_reference_values_is_not_called_supported(build):
    assert build.codes(build.measurement(build.comparison(reference=""))) == [("INC909", "inconclusive")]


def test_a_ratio_that_is_not_a_number_is_a_fault_of_ours(build):
    assert build.codes(build.measurement(build.comparison(worst_ratio=float("nan")))) == [("INC909", "inconclusive")]
