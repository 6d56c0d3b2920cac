"""Checks that follow from a run's device and environment, and the root causes they make."""

from __future__ import annotations

import pytest

from audit.rules.preflight import preflight, root_causes
from audit.run_records import PreflightCheck
from audit.schema import DeviceInfo

HIP = DeviceInfo("hip", "AMD Instinct MI300X", "gfx942")


def _checks(device, **environment):
    return [(check.name, check.result) for check in preflight(device, environment)]


def _messages(device, **environment):
    return [check.message for check in preflight(device, environment) if check.result != "ok"]


def test_an_arch_that_the_build_has_passes_and_another_fails():
    assert _checks(HIP, arch_list="gfx90a gfx942") == [("arch", "ok")]
    assert _checks(HIP, arch_list="gfx90a,gfx1100") == [("arch", "failed")]
    [message] = _messages(HIP, arch_list="gfx90a gfx1100")
    assert message.startswith("this torch has no code for gfx942, only for gfx90a, gfx1100")


def test_feature_flags_behind_the_arch_do_not_matter():
    assert _checks(HIP, arch_list="gfx942:sramecc+:xnack-") == [("arch", "ok")]


def test_a_prediction_looks_the_arch_up_in_the_newest_wheels():
    assert _checks(DeviceInfo("none", "MI300X", "gfx942")) == [("arch", "ok")]
    assert _checks(DeviceInfo("none", "RX 6700 XT", "gfx1031"), arch_list="gfx1031") == [("arch", "failed")]


@pytest.mark.parametrize(
    ("arch", "arch_list", "result"),
    [
        ("sm_90", "sm_80 sm_90", "ok"),
        ("sm_86", "sm_80", "ok"),
        ("sm_90", "sm_80", "failed"),
        ("sm_90", "sm_80 compute_80", "ok"),
        ("sm_80", "sm_90 compute_90", "failed"),
        ("sm_100", "sm_90a", "failed"),
        ("sm_120", "sm_120", "ok"),
    ],
)
def test_cuda_code_runs_on_later_minors_and_ptx_on_anything_later(arch, arch_list, result):
    assert _checks(DeviceInfo("cuda", "GPU", arch), arch_list=arch_list) == [("arch", result)]


def test_an_overridden_arch_is_a_warning_that_says_the_name_may_lie():
    assert _checks(HIP, HSA_OVERRIDE_GFX_VERSION="9.4.2") == [("gfx override", "warning")]
    assert "calls itself gfx942" in _messages(HIP, HSA_OVERRIDE_GFX_VERSION="9.4.2")[0]


def test_a_lesser_gpu_beside_a_better_one_costs_both_hipblaslt():
    assert _messages(HIP, gpus="gfx942 gfx1030") == [
        "different GPUs are visible together: gfx942, gfx1030; because of gfx1030 torch uses rocBLAS on all of them"
    ]
    assert _checks(HIP, gpus="gfx942 gfx942") == []
    assert "rocBLAS" not in _messages(HIP, gpus="gfx942 gfx90a")[0]


@pytest.mark.parametrize(
    ("hip", "rocm", "expected"),
    [
        ("7.2.53211", "7.2.1", "ok"),
        ("7.2.53211", "7.13.0", "newer than torch expects"),
        ("7.13.60800-96e30b429c", "7.2.1", "older than torch expects"),
        ("7.14.0", "10.1.0", "newer than torch expects"),
    ],
)
def test_versions_compare_as_numbers(hip, rocm, expected):
    [check] = preflight(HIP, {"hip": hip, "rocm": rocm})
    assert check.name == "rocm version"
    if expected == "ok":
        assert check.result == "ok"
    else:
        assert check.result == "warning"
        assert check.message.endswith(expected)


def test_variables_that_change_numbers_or_times_are_named_in_one_warning():
    [message] = _messages(HIP, HIPBLASLT_ALLOW_TF32="1", AMD_SERIALIZE_KERNEL="3", MIOPEN_FIND_MODE="2", HOME="x")
    assert message == (
        "set in the environment: HIPBLASLT_ALLOW_TF32=1 (changes numbers), AMD_SERIALIZE_KERNEL=3 (changes times)"
    )


def test_the_simulated_device_has_nothing_to_check():
    assert _checks(DeviceInfo("sim", "sim", "sim"), HSA_OVERRIDE_GFX_VERSION="9.4.2", hip="7.2", rocm="6.4") == []


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("arch", "SUP110"),
        ("gfx override", "SUP111"),
        ("mixed gpus", "SUP112"),
        ("rocm version", "SUP113"),
        ("probe", "SUP114"),
        ("disk", "SUP119"),
    ],
)
def test_each_check_has_its_code_failed_or_warned(name, code):
    checks = (PreflightCheck(name, "warning", "w", "do this"), PreflightCheck(name, "failed", "f", "do that"))
    failed, warned = root_causes(checks)
    assert (failed.code, failed.status, failed.message) == (code, "unsupported", "f")
    assert (warned.code, warned.status, warned.data["remedy"]) == (code, "supported", "do this")


def test_checks_that_passed_are_no_root_cause():
    assert list(root_causes((PreflightCheck("arch", "ok", "fine"),))) == []
