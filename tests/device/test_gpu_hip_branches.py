"""The HIP branches of the GPU device on any machine: ROCm's version, properties and events are substituted."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from audit.device import gpu, profile, registry
from audit.errors import UsageError
from audit.schema import Copy, Kernel

_MI300X = {
    "name": "AMD Instinct MI300X", "gcnArchName": "gfx942:sramecc+:xnack-", "major": 9, "minor": 4,
    "multi_processor_count": 304, "total_memory": 206141652992, "warp_size": 64, "L2_cache_size": 4194304,
}  # fmt: skip


@pytest.fixture
def rocm(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process's torch, as a ROCm build describes itself."""
    monkeypatch.setattr(torch.version, "hip", "7.2.53211")
    monkeypatch.setattr(torch.version, "cuda", None)


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", "12.8")


@pytest.fixture
def cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.version, "cuda", None)


def _properties(**changed: Any) -> Any:
    return SimpleNamespace(**{**_MI300X, **changed})


@pytest.mark.usefixtures("rocm")
def test_the_arch_is_the_part_of_gcn_arch_name_before_the_colon() -> None:
    info = gpu.describe(_properties())
    assert (info.backend, info.name, info.arch) == ("hip", "AMD Instinct MI300X", "gfx942")
    assert info.properties["gcnArchName"] == "gfx942:sramecc+:xnack-"
    assert info.properties["warp_size"] == "64"
    assert info.properties["multi_processor_count"] == "304"
    assert info.properties["runtime"] == "7.2.53211"


@pytest.mark.usefixtures("rocm")
def test_a_gfx90a_is_not_taken_for_an_h100_though_its_capability_is_nine_zero() -> None:
    properties = _properties(gcnArchName="gfx90a:sramecc+:xnack-", major=9, minor=0)
    assert gpu.arch_of(properties) == "gfx90a"


@pytest.mark.usefixtures("cuda")
def test_on_cuda_the_arch_is_the_compute_capability() -> None:
    info = gpu.describe(SimpleNamespace(name="NVIDIA H200", gcnArchName="NVIDIA H200", major=9, minor=0))
    assert (info.backend, info.arch) == ("cuda", "sm_90")
    assert "gcnArchName" not in info.properties


@pytest.mark.usefixtures("rocm")
def test_an_amd_gpu_without_a_name_is_called_by_its_arch_and_size() -> None:
    assert gpu.describe(_properties(name="")).name == "AMD GPU gfx942 with 304 CUs"


@pytest.mark.usefixtures("rocm")
def test_an_overridden_arch_is_shown_beside_the_arch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HSA_OVERRIDE_GFX_VERSION", "11.0.0")
    assert gpu.describe(_properties()).properties["HSA_OVERRIDE_GFX_VERSION"] == "11.0.0"


# --- which device there is -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("rocm")
def test_auto_is_hip_on_a_rocm_build_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)  # a CUDA build lacks the library that a ROCm one asks
    assert registry.resolve("auto") == "hip"
    assert registry.resolve("hip") == "hip"


@pytest.mark.usefixtures("cuda")
def test_auto_is_cuda_on_a_cuda_build_with_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert registry.resolve("auto") == "cuda"


@pytest.mark.usefixtures("rocm")
def test_auto_is_none_on_a_rocm_build_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert registry.resolve("auto") == "none"
    with pytest.raises(UsageError, match=r"is a ROCm build but finds no AMD GPU; check the driver \(rocminfo\)"):
        registry.resolve("hip")


@pytest.mark.usefixtures("cpu_build")
def test_hip_on_a_cpu_build_is_refused_with_what_was_found_and_what_to_do() -> None:
    with pytest.raises(UsageError, match="is a CPU build; install a ROCm build") as raised:
        registry.resolve("hip")
    assert (raised.value.slug, raised.value.exit_code) == ("no-device", 2)
    assert torch.__version__ in str(raised.value)


@pytest.mark.usefixtures("cuda")
def test_hip_on_a_cuda_build_is_refused_and_cuda_is_named() -> None:
    with pytest.raises(UsageError, match="is built for CUDA; use --device cuda, or install a ROCm build"):
        registry.resolve("hip")


@pytest.mark.usefixtures("rocm")
def test_cuda_on_a_rocm_build_is_refused_though_torch_calls_the_device_cuda() -> None:
    with pytest.raises(UsageError, match="is built for HIP; use --device hip"):
        registry.resolve("cuda")


@pytest.mark.parametrize("name", ["rocm", "gpu", "cuda:x", ""])
def test_an_unknown_device_is_refused_with_the_names_that_there_are(name: str) -> None:
    with pytest.raises(UsageError, match="choose one of auto, hip, hip:N, cuda, cuda:N, sim") as raised:
        registry.resolve(name)
    assert raised.value.slug == "unknown-device"


def test_a_fault_file_that_is_not_there_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(UsageError, match=r"there is no fault file absent.py") as raised:
        registry.resolve("sim:absent.py")
    assert raised.value.slug == "bad-fault-file"


@pytest.mark.usefixtures("simulated_device")
def test_the_simulated_device_opens_without_a_gpu() -> None:
    assert registry.open_device("sim").info().backend == "sim"


def test_the_cpu_opens_anywhere() -> None:
    assert registry.open_device("cpu").info().backend == "cpu"


@pytest.mark.parametrize(
    "remove",
    [
        "import torch.utils.backend_registration as r; vars(r).pop('_setup_privateuseone_for_python_backend', None)",
        "import torch; del torch._C._current_autograd_node",
        "import torch; torch.utils.rename_privateuse1_backend('npu')",
    ],
)
def test_a_torch_that_cannot_simulate_says_so_with_exit_code_two(remove: str) -> None:
    script = """
        REMOVE
        from audit.device.registry import open_device
        from audit.errors import UsageError
        try:
            open_device("sim")
        except UsageError as error:
            print(error.slug, error.exit_code)
    """
    command = [sys.executable, "-c", textwrap.dedent(script).replace("REMOVE", remove)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "sim-unavailable 2\n"


def test_none_cannot_be_opened() -> None:
    with pytest.raises(UsageError, match="there is no device to open"):
        registry.open_device("none")


# --- profiler events as ROCm's Kineto gives them ---------------------------------------------------------------


class _Event:
    """A Kineto event with the methods that the code reads; an older torch lacks ``nbytes`` and ``activity_type``."""

    def __init__(
        self,
        name: str,
        device: str = "CUDA",
        ns: int = 0,
        nbytes: int | None = None,
        json: str = "",
        activity: str = "",
    ) -> None:
        self._name, self._device, self._ns, self._json = name, device, ns, json
        if activity:
            self.activity_type = lambda: activity
        if nbytes is not None:
            self.nbytes = lambda: nbytes

    def name(self) -> str:
        return self._name

    def device_type(self) -> str:
        return f"DeviceType.{self._device}"

    def duration_ns(self) -> int:
        return self._ns

    def metadata_json(self) -> str:
        return self._json


def test_kernels_are_summed_by_name_and_copies_and_fills_are_no_kernels() -> None:
    gemm = "Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64"
    events = [
        _Event("aten::mm", device="CPU", ns=9000),
        _Event(gemm, ns=4000),
        _Event(gemm, ns=6000, activity="kernel"),
        _Event("step", ns=6000, activity="gpu_user_annotation"),
        _Event("Memset (Device)", ns=100),
        _Event("__amd_rocclr_fillBufferAligned.kd", ns=100),
        _Event("__amd_rocclr_copyBuffer.kd", ns=100),
        _Event("Memcpy DtoH (Device -> Pinned)", ns=100, nbytes=4),
    ]
    assert profile.kernels_of(events) == (Kernel(gemm, 10.0, 2),)
    assert profile.moved_us(events) == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("event", "copy"),
    [
        (_Event("Memcpy DtoH (Device -> Pageable)", nbytes=4096), Copy("DtoH", 4096)),
        (_Event("Memcpy HtoD (Pinned -> Device)", json='"stream": 7, "bytes": 512'), Copy("HtoD", 512)),
        (_Event("MEMORY_COPY_DEVICE_TO_HOST", nbytes=0), Copy("DtoH", 0)),
        (_Event("MEMORY_COPY_HOST_TO_DEVICE.kd"), Copy("HtoD", 0)),
    ],
)
def test_copies_are_read_by_the_names_of_each_rocm_version(event: _Event, copy: Copy) -> None:
    assert profile.copies_of([event]) == (copy,)


def test_a_copy_between_two_places_on_the_device_is_no_host_copy() -> None:
    assert profile.copies_of([_Event("Memcpy DtoD (Device -> Device)", nbytes=64)]) == ()


def test_chosen_ops_are_named_once_in_order_with_their_sole_overload() -> None:
    inner = ["aten::_convolution", "aten::miopen_convolution", "aten::add_.Tensor"]
    profiled = ["aten::convolution", *inner, "hipLaunchKernel", "ProfilerStep#1", "aten::convolution"]
    assert profile.chosen_ops(profiled) == (
        "aten::convolution.default",
        "aten::_convolution.default",
        "aten::miopen_convolution.default",
        "aten::add_.Tensor",
    )


def test_observing_does_not_put_a_dispatch_mode_beside_the_op() -> None:
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    modes, _ = profile.Profiler(lambda: None).observe(_get_current_dispatch_mode_stack)
    assert modes == []


def test_only_what_ran_inside_the_op_is_told_where_the_call_does_more() -> None:
    def call() -> None:
        torch.ones(2, 2).clone()
        torch.linalg.vector_norm(torch.zeros(3))

    _, path = profile.Profiler(lambda: None).observe(call, "aten::linalg_vector_norm")
    assert "aten::linalg_vector_norm.default" in path.chosen_ops
    assert not {"aten::clone.default", "aten::zeros.default"} & set(path.chosen_ops)


def test_without_a_gpu_the_profiler_fails_its_self_test_and_says_incomplete() -> None:
    profiler = profile.Profiler(lambda: None)
    profiler.test_itself(torch.device("cpu"))
    result, path = profiler.observe(lambda: torch.ones(2, 2) @ torch.ones(2, 2))
    assert result.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    assert path.chosen_ops[0] == "aten::ones.default"
    assert "aten::mm.default" in path.chosen_ops
    assert path.kernels == ()
    assert not path.complete


def test_a_profiler_that_sees_no_kernels_is_not_given_more_and_more_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    profiler = profile.Profiler(lambda: None)
    profiler.test_itself(torch.device("cpu"))
    launched: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "add_", lambda tensor, _: launched.append(tensor))
    profiler.observe(lambda: None)
    assert launched == []


def test_observing_says_nothing_on_file_descriptor_two() -> None:
    script = """
        import torch
        from audit.device.profile import Profiler
        torch.set_warn_always(True)
        Profiler(lambda: None).observe(lambda: torch.ones(2).sum())
    """
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120)
    assert done.stderr == b""


def test_ops_inside_a_kernel_are_named_with_their_overload() -> None:
    _, path = profile.Profiler(lambda: None).observe(lambda: torch.ones(3).sum(0))
    assert "aten::sum.dim_IntList" in path.chosen_ops
