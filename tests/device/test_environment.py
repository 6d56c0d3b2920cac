"""The environment in a run file is an allow-list: settings are shown, secrets and paths with user names are not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from audit.device import environment
from audit.device.environment import Gpu, collect_environment, describe, look_at_machine, shown_variables

KNOWN = {"MIOPEN_USER_DB_PATH": "affects_timing", "AMD_SERIALIZE_KERNEL": "affects_timing"}


def test_known_and_prefixed_settings_are_shown_and_nothing_else() -> None:
    environ = {"AMD_SERIALIZE_KERNEL": "3", "HSA_ENABLE_SDMA": "0", "HOME": "/home/ada", "AWS_REGION": "eu-west-1"}
    assert shown_variables(environ, KNOWN) == {"AMD_SERIALIZE_KERNEL": "3", "HSA_ENABLE_SDMA": "0"}


@pytest.mark.parametrize(
    "name", ["HIP_TOKEN", "TORCH_API_KEY", "ROCM_PASSWORD", "PYTORCH_CI_SECRET", "HSA_ACCESS_KEY_ID"]
)
def test_a_secret_with_a_steering_prefix_is_not_even_named(name: str) -> None:
    assert shown_variables({name: "1"}, KNOWN) == {}


@pytest.mark.parametrize(
    "value", ["/home/ada/models", "ghp_16C7e42F292c6912E7710c838347Ae178B4aQ", "http://ada:pw@proxy"]
)
def test_a_value_that_is_no_plain_setting_is_withheld(value: str) -> None:
    assert shown_variables({"TORCH_HOME": value}, KNOWN) == {"TORCH_HOME": "(set, value withheld)"}


def test_the_home_folder_in_a_known_path_names_no_user() -> None:
    environ = {"MIOPEN_USER_DB_PATH": "/home/ada/.config/miopen:/root/db:/data/home/db"}
    assert shown_variables(environ, KNOWN) == {"MIOPEN_USER_DB_PATH": "~/.config/miopen:~/db:/data/home/db"}


def test_the_knowledge_base_knows_what_the_override_does() -> None:
    assert environment.steering_variables()["HSA_OVERRIDE_GFX_VERSION"] == "spoofs_device"


def test_the_environment_says_which_torch_ran(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    monkeypatch.setenv("SOMETHING_PRIVATE", "hunter2")
    collected = collect_environment()
    assert collected["torch"] == torch.__version__
    assert collected["HSA_OVERRIDE_GFX_VERSION"] == "11.0.0"
    assert "hunter2" not in str(collected)


class RocmProperties:
    """Device properties as a ROCm build gives them for an MI300X; major and minor would read as compute 9.4."""

    name = "AMD Instinct MI300X"
    gcnArchName = "gfx942:sramecc+:xnack-"
    major, minor = 9, 4
    multi_processor_count = 304
    total_memory = 206141652992


def test_on_rocm_the_arch_comes_from_the_arch_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "7.2.53211")
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: RocmProperties())
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["gfx90a", "gfx942"])
    collected = collect_environment()
    assert (collected["hip"], collected["gpus"], collected["arch_list"]) == ("7.2.53211", "gfx942", "gfx90a gfx942")
    machine = look_at_machine()
    assert machine.gpus == (Gpu("AMD Instinct MI300X", "gfx942", "sramecc+:xnack-", 304, 206141652992),)
    assert machine.arch_list == ("gfx90a", "gfx942")
    assert describe(machine.gpus[0]) == "AMD Instinct MI300X (gfx942:sramecc+:xnack-), 304 units, 192.0 GiB"


def test_a_kernel_probe_without_a_gpu_says_what_torch_said() -> None:
    if torch.cuda.is_available():
        assert environment.probe_kernel() == "passed"
    else:
        assert environment.probe_kernel() not in ("passed", "not run", "")


def test_a_kernel_probe_that_never_answers_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_PROBE", "import time; time.sleep(60)")
    assert environment.probe_kernel(timeout_s=1.0) == "no answer within 1 s"


def test_a_kernel_probe_that_dies_names_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_PROBE", "import os; os.kill(os.getpid(), 11)")
    assert environment.probe_kernel() == "killed by signal 11"


def test_device_nodes_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri/renderD129").touch()
    assert environment._device_nodes(tmp_path) == {
        str(tmp_path / "kfd"): "absent",
        str(tmp_path / "dri/renderD129"): "ok",
    }


def test_a_driver_without_a_version_is_the_one_built_into_the_kernel(tmp_path: Path) -> None:
    assert environment._amdgpu_driver(tmp_path / "amdgpu") is None
    (tmp_path / "amdgpu").mkdir()
    assert environment._amdgpu_driver(tmp_path / "amdgpu") == "built in"
    (tmp_path / "amdgpu/version").write_text("6.12.12\n")
    assert environment._amdgpu_driver(tmp_path / "amdgpu") == "6.12.12"
