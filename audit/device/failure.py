"""What an exception from a device means: no kernel, no memory, or a device that cannot be used any more.

Goes by types and by the texts of ROCm and CUDA builds, never by the word "cuda" alone: HIP says "HIP error", and the
messages about a missing kernel or full memory say "CUDA" on AMD too.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

import torch

FailureKind: TypeAlias = Literal["device_error", "out_of_memory", "missing_kernel", "not_simulated", "raised"]

_OUT_OF_MEMORY = re.compile(
    r"\bout of memory\b|hipErrorOutOfMemory|cudaErrorMemoryAllocation|HSA_STATUS_ERROR_OUT_OF_RESOURCES"
    r"|CU(BLAS|DNN)_STATUS_ALLOC_FAILED|miopenStatusAllocFailed|can't allocate memory|DefaultCPUAllocator",
    re.IGNORECASE,
)

#: Sticky errors: after one of these every later call in the process fails or lies. Launch errors that leave the context
#: usable (a missing code object) say "HIP error" too; the process is replaced all the same, which costs seconds.
_DEVICE_ERROR = re.compile(
    r"\b(HIP|CUDA) error\b|\bhipError[A-Z]|\bcudaError[A-Z]|device-side assert|HSA_STATUS_ERROR"
    r"|Memory access fault|illegal memory access|unspecified launch failure|an illegal instruction was encountered"
    r"|HW Exception by GPU|GPU Hang",
    re.IGNORECASE,
)

_MISSING_KERNEL = re.compile(
    r"Could not run '[^']+' (from|with arguments from) the '\w+' backend"
    r"|\"[\w:. ]+\" not implemented for '\w+'"
    r"|doesn't support tensors of type|conversion is not supported on CPU"
    r"|ATen not compiled with \w+ support|was not compiled with \w+ support|is not currently implemented for the",
)


class NotSimulatedError(RuntimeError):
    """The simulated device has no way to compute an op; this says nothing about any real device."""


def classify(error: BaseException) -> FailureKind:
    """The kind of failure; memory is looked at first, since HIP reports it as a "HIP error: out of memory"."""
    text = str(error)
    if isinstance(error, NotSimulatedError):
        return "not_simulated"
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return "out_of_memory"
    if isinstance(error, RuntimeError) and _OUT_OF_MEMORY.search(text):
        return "out_of_memory"
    if _is_accelerator_error(error) or (isinstance(error, RuntimeError) and _DEVICE_ERROR.search(text)):
        return "device_error"
    if isinstance(error, RuntimeError) and _MISSING_KERNEL.search(text):  # NotImplementedError is a RuntimeError
        return "missing_kernel"
    return "raised"


def stderr_shows_device_error(text: str) -> bool:
    """True when what the runtime wrote to file descriptor 2 says that the device faulted (before an abort)."""
    return bool(_DEVICE_ERROR.search(text))


def _is_accelerator_error(error: BaseException) -> bool:
    kind = getattr(torch, "AcceleratorError", None)  # since torch 2.8
    return kind is not None and isinstance(error, kind)
