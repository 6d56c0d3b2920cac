"""What an exception means is read from types and from real texts of ROCm builds, never from the word "cuda"."""

from __future__ import annotations

import pytest
import torch

from audit.device.failure import classify, stderr_shows_device_error

_HIP_TAIL = (
    "\nHIP kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing AMD_SERIALIZE_KERNEL=3\nCompile with `TORCH_USE_HIP_DSA` to enable "
    "device-side assertions.\n"
)


@pytest.mark.parametrize(
    "text",
    [
        "HIP error: an illegal memory access was encountered" + _HIP_TAIL,
        "HIP error: unspecified launch failure" + _HIP_TAIL,
        "HIP error: invalid device function" + _HIP_TAIL,
        "HIP error: the operation cannot be performed in the present state" + _HIP_TAIL,
        "hipErrorNoBinaryForGpu: Unable to find code object for all current devices!",
        "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported",
        "CUDA error: an illegal memory access was encountered",
        "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception. code: 0x1016",
        "HIP out of range: device-side assert triggered",
    ],
)
def test_a_sticky_error_of_the_runtime_is_a_device_error(text: str) -> None:
    assert classify(RuntimeError(text)) == "device_error"


@pytest.mark.skipif(not hasattr(torch, "AcceleratorError"), reason="torch before 2.8 has no AcceleratorError")
def test_an_accelerator_error_is_a_device_error_whatever_it_says() -> None:
    assert classify(torch.AcceleratorError("something new")) == "device_error"


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("HIP out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("HIP error: out of memory" + _HIP_TAIL),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("hipErrorOutOfMemory"),
        RuntimeError("HSA_STATUS_ERROR_OUT_OF_RESOURCES: The runtime failed to allocate the necessary resources."),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
)
def test_full_memory_is_out_of_memory_even_when_hip_calls_it_an_error(error: BaseException) -> None:
    assert classify(error) == "out_of_memory"


@pytest.mark.parametrize(
    "text",
    [
        "Could not run 'aten::histogram.bin_ct' with arguments from the 'CUDA' backend. This could be because ...",
        "Could not run 'aten::_spdiags' from the 'CUDA' device.\nCould not run 'aten::x' from the 'CUDA' backend",
        "\"addmm_cuda\" not implemented for 'Long'",
        "\"cholesky_cuda\" not implemented for 'Half'",
        "miopen_convolution: ATen not compiled with MIOpen support",
        "linalg.lu_factor: PyTorch was not compiled with MAGMA support.",
        "MKL FFT doesn't support tensors of type: Half",
        "softmax with half to float conversion is not supported on CPU",
    ],
)
def test_a_text_about_a_missing_kernel_is_a_missing_kernel_though_it_names_cuda(text: str) -> None:
    assert classify(NotImplementedError(text)) == "missing_kernel"
    assert classify(RuntimeError(text)) == "missing_kernel"


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("miopenStatusUnknownError"),
        RuntimeError("Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"),
        RuntimeError("Expected tensor on cuda"),
        RuntimeError(
            "torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9, or ROCm MI300+"
        ),
        RuntimeError("grouped gemm is not supported on ROCM"),
        IndexError("index 5 is out of range"),
        ValueError("HIP error: only said in passing by Python code"),
        NotImplementedError("this option is not written yet"),
    ],
)
def test_everything_else_was_just_raised(error: BaseException) -> None:
    assert classify(error) == "raised"


def test_a_memory_access_fault_on_stderr_shows_a_device_error() -> None:
    text = "Memory access fault by GPU node-1 (Agent handle: 0x55d) on address 0x7f4000000000. Reason: Unknown."
    assert stderr_shows_device_error(text)
    assert not stderr_shows_device_error("MIOpen(HIP): Warning [IsEnoughWorkspace] Solver <GemmFwdRest>, size: 0")
