"""A machine that cannot run a kernel is told why in one sentence; the machines are made up from field reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audit.device.environment import Gpu, Machine
from audit.device.machine import machine_checks

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
    return {check.name: check.result for check in machine_checks(machine) if check.result != "ok"}


def message(machine: Machine, name: str) -> str:
    return next(check.message for check in machine_checks(machine) if check.name == name)


def test_a_healthy_machine_has_no_problem() -> None:
    assert problems(HEALTHY) == {}
    assert [check.name for check in machine_checks(HEALTHY)] == ["torch", "gpu", "amdgpu driver", "probe", "disk"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"probe": "HIP error: invalid device function"}, {"probe": "failed"}),
        ({"probe": "not run"}, {}),
        ({"free_bytes": 2**30}, {"disk": "warning"}),
        ({"torch": "2.4.1+rocm6.1"}, {"torch": "warning"}),
        ({"torch": "2.10.0+rocm7.1"}, {}),
        ({"gpus": (), "probe": "not run"}, {"gpu": "failed"}),
    ],
)
def test_each_cause_is_named_once(changes: dict[str, object], expected: dict[str, str]) -> None:
    assert problems(replace(HEALTHY, **changes)) == expected  # type: ignore[arg-type]  # one case of each field


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


def test_a_gpu_is_described_with_its_whole_arch() -> None:
    assert message(HEALTHY, "gpu") == "AMD Instinct MI300X (gfx942:sramecc+:xnack-), 304 units, 192.0 GiB"
