"""The preflight names one root cause in one sentence, on machines made up from field reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.device.environment import Gpu, Machine
from audit.device.preflight import preflight

MI300X = Gpu("AMD Instinct MI300X", "gfx942", "sramecc+:xnack-", 304, 206158430208)
HEALTHY = Machine(
    torch="2.13.0+rocm7.2",
    hip="7.2.53211",
    gpus=(MI300X,),
    arch_list=("gfx90a", "gfx942", "gfx1100"),
    driver="6.16.6",
    system_rocm="7.2.0-43",
    nodes={"/dev/kfd": "ok", "/dev/dri/renderD128": "ok"},
    free_bytes=100 * 2**30,
    probe="passed",
)


def problems(machine: Machine) -> dict[str, str]:
    """Name and result of each check that is not ok."""
    return {check.name: check.result for check in preflight(machine) if check.result != "ok"}


def message(machine: Machine, name: str) -> str:
    return next(check.message for check in preflight(machine) if check.name == name)


def test_a_healthy_machine_has_no_problem() -> None:
    assert problems(HEALTHY) == {}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"gpus": (replace(MI300X, arch="gfx1103"),)}, {"arch": "failed"}),
        ({"variables": {"HSA_OVERRIDE_GFX_VERSION": "11.0.0"}}, {"arch override": "warning"}),
        ({"gpus": (MI300X, replace(MI300X, arch="gfx1100"))}, {"mixed gpus": "warning"}),
        ({"system_rocm": "7.13.0"}, {"rocm": "warning"}),
        ({"system_rocm": None}, {}),
        ({"probe": "HIP error: invalid device function"}, {"one kernel": "failed"}),
        ({"probe": "not run"}, {}),
        ({"variables": {"ROCBLAS_INTERNAL_FP16_ALT_IMPL": "1"}}, {"variables": "warning"}),
        ({"free_bytes": 2**30}, {"disk": "warning"}),
        ({"torch": "2.4.1+rocm6.1"}, {"torch": "warning"}),
    ],
)
def test_each_root_cause_is_named_once(changes: dict[str, object], expected: dict[str, str]) -> None:
    assert problems(replace(HEALTHY, **changes)) == expected  # type: ignore[arg-type]  # one case of each field


def test_a_wheel_without_code_for_the_arch_says_what_it_has() -> None:
    machine = replace(HEALTHY, gpus=(replace(MI300X, arch="gfx1103"),))
    assert message(machine, "arch") == "this torch has no code for gfx1103, only for gfx1100 gfx90a gfx942"


def test_no_permission_on_the_device_file_is_told_from_a_missing_driver() -> None:
    blind = replace(HEALTHY, gpus=(), probe="not run")
    denied = replace(blind, nodes={"/dev/kfd": "no permission", "/dev/dri/renderD128": "ok"})
    assert message(denied, "gpu") == "no GPU is seen: no permission on /dev/kfd"
    assert message(replace(blind, driver=None, nodes={"/dev/kfd": "absent"}), "gpu") == (
        "no GPU is seen: the amdgpu driver is not loaded"
    )


def test_a_cpu_build_is_a_warning_because_sim_works_without_a_gpu() -> None:
    machine = Machine(torch="2.13.0+cpu", free_bytes=100 * 2**30)
    assert problems(machine) == {"gpu": "warning"}


def test_rocm_releases_are_compared_as_numbers() -> None:
    assert problems(replace(HEALTHY, hip="7.13.60800-96e30b", system_rocm="7.13.1")) == {}
    assert problems(replace(HEALTHY, hip="7.1.1", system_rocm="7.13.1")) == {"rocm": "warning"}


def test_an_nvidia_gpu_is_not_held_to_the_arch_list() -> None:
    machine = Machine(torch="2.13.0", cuda="13.0", gpus=(Gpu("NVIDIA H200", "sm_90"),), free_bytes=100 * 2**30)
    assert "arch" not in {check.name for check in preflight(machine)}
