"""Reports of ops that raise, crash or hang, and of those that take a lesser path."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.nn.functional as F

from audit.device.sim.faults import Call
from tests.detection.fault import Fault, always, argument, healthy, normal, raising
from tests.detection.reported_sizes import CONVOLUTION

MEMORY_FAULT = (
    "Memory access fault by GPU node-1 (Agent handle: 0x5581) on address 0x7f0000000000. Reason: Page not present."
)


def _gpu_fault(call: Call) -> Any:
    call.stderr(MEMORY_FAULT)
    os.abort()


def _segfault(call: Call) -> Any:
    os.kill(os.getpid(), signal.SIGSEGV)


def _for_ever(call: Call) -> Any:
    while True:
        call.sleep(1.0)


# --- programs -----------------------------------------------------------------------------------------------------


def _eigenvalues(side: int, dtype: torch.dtype) -> torch.Tensor:
    a = normal(side, side, dtype=dtype)
    return torch.linalg.eigh(a + a.T)[0]


def _integer_product(dtype: torch.dtype) -> torch.Tensor:
    a, b = (torch.randint(-9, 9, (32, 32), generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    return torch._int_mm(a.to(dtype), b.to(dtype)) if dtype == torch.int8 else a.float() @ b.float()


def _lstm(inputs: int, hidden: int, n_layers: int, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    layer = torch.nn.LSTM(inputs, hidden, n_layers, dropout=dropout, batch_first=True)
    with torch.no_grad():
        return layer(normal(1, 5, inputs))


def _wide_lstm(call: Call) -> bool:
    return call.args[6] == 640 and call.args[7] == 2


def _embedding(index: int) -> torch.Tensor | None:
    try:
        return F.embedding(torch.tensor([0, index]), normal(10, 4))
    except IndexError:
        return None


def _batch(n: int) -> torch.Tensor:
    weight, bias = normal(12, 16, dtype=torch.bfloat16), normal(16, dtype=torch.bfloat16)
    return torch.addmm(bias, normal(n, 12, dtype=torch.bfloat16), weight)


# --- paths: E01, E05, F01, F02, F04 -------------------------------------------------------------------------------


def _half_1d(call: Call) -> bool:
    return call.args[0].dtype == torch.float16 and call.args[1].size(2) == 1 and call.args[1].size(0) == 24


def _naive_kernel(call: Call) -> Any:
    call.kernel("naive_conv_nonpacked_fwd_nchw_half_double_half", 900.0)
    return healthy(call)


def _no_workspace(call: Call) -> Any:
    call.stderr(
        "MIOpen(HIP): Warning [IsEnoughWorkspace] [EvaluateInvokers] Solver <GemmFwdRest>, workspace required: "
        "166871040, provided ptr: 0 size: 0"
    )
    call.kernel("naive_conv_ab_nonpacked_fwd_nchw_float_double_float", 900.0)
    return healthy(call)


def _math(call: Call) -> Any:
    """The gate of the experimental kernels is closed: neither fused kernel is on offer."""
    fused = torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled()
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    try:
        return healthy(call)
    finally:
        torch.backends.cuda.enable_flash_sdp(fused[0])
        torch.backends.cuda.enable_mem_efficient_sdp(fused[1])


def _told(text: str) -> Any:
    def effect(call: Call) -> Any:
        call.warn(text)
        return healthy(call)

    return effect


def _attend(length: int, dim: int, mask: bool = False) -> torch.Tensor:
    query, key, value = (normal(1, 2, length, dim, seed=seed) for seed in range(3))
    allowed = torch.ones(length, length, dtype=torch.bool).tril() if mask else None
    return F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)


def _bmm(tf32: bool) -> torch.Tensor:
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    try:
        return normal(3, 24, 24) @ normal(3, 24, 24, seed=1)
    finally:
        torch.set_float32_matmul_precision("highest")


SDPA = ("aten::scaled_dot_product_attention.default",)
UNSUPPORTED = {"expected": "unsupported", "codes": ("SUP101",)}
CRASH = {"expected": "unsupported", "codes": ("SUP101", "SUP102")}
FALLBACK = {"expected": "falling_back", "codes": ("FBK302", "FBK303", "FBK304", "FBK305")}

FAULTS = (
    Fault(
        "B03", "linalg.eig, wheel without MAGMA", ("aten::linalg_eig.default",), always,
        raising(RuntimeError, "Calling torch.linalg.eig on a CUDA tensor requires compiling PyTorch with MAGMA. Either "
                "transfer the tensor to the CPU before calling torch.linalg.eig or recompile with MAGMA."),
        lambda: torch.linalg.eig(normal(4, 4)), lambda: _eigenvalues(4, torch.float32), "eigh", **UNSUPPORTED,
    ),
    Fault(
        "B04", "_int_mm: no int8 kernels for the GPU", ("aten::_int_mm.default",), always,
        raising(RuntimeError, "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling `cublasGemmEx(...)`"),
        lambda: _integer_product(torch.int8), lambda: _integer_product(torch.float32), "float32", **UNSUPPORTED,
    ),
    Fault(
        "B06", "convolution of (1, 3, 512, 512) in 3 groups",
        (*CONVOLUTION, "aten::miopen_depthwise_convolution.default"),
        lambda call: call.args[6] == 3,
        raising(RuntimeError, "miopenStatusUnknownError", "Failed getting available memory: invalid argument"),
        lambda: F.conv2d(torch.ones(1, 3, 512, 512), torch.ones(3, 1, 5, 5), groups=3),
        lambda: F.conv2d(torch.ones(1, 3, 128, 128), torch.ones(3, 3, 5, 5)), "one group", **UNSUPPORTED,
    ),
    Fault(
        "B07", "LSTM of two layers, 640 wide", ("aten::miopen_rnn.default",), _wide_lstm,
        raising(RuntimeError, "miopenStatusUnknownError"),
        lambda: _lstm(640, 640, 2), lambda: _lstm(64, 64, 2), "64 wide", **UNSUPPORTED,
    ),
    Fault(
        "C02", "bf16 addmm of a very long batch, 12 to 16 wide", ("aten::addmm.default",),
        lambda call: call.args[1].dtype == torch.bfloat16 and call.args[1].size(0) >= 72000, _gpu_fault,
        lambda: _batch(72000), lambda: _batch(71999), "one row less", scaled="72,000 rows for 7,200,000", **CRASH,
    ),
    Fault(
        "C03", "eigh of a large float64 matrix", ("aten::_linalg_eigh.default",),
        lambda call: call.args[0].dtype == torch.float64 and call.args[0].size(-1) >= 256, _segfault,
        lambda: _eigenvalues(256, torch.float64), lambda: _eigenvalues(255, torch.float64), "255",
        scaled="256 for 8,192", **CRASH,
    ),
    Fault(
        "C04", "Conv3d 32 to 16 channels, kernel 3", CONVOLUTION,
        lambda call: call.args[0].dim() == 5 and call.args[0].numel() >= 1 << 18, _gpu_fault,
        lambda: F.conv3d(normal(1, 32, 16, 16, 32), normal(16, 32, 3, 3, 3), padding=1),
        lambda: F.conv3d(normal(1, 32, 16, 16, 31), normal(16, 32, 3, 3, 3), padding=1), "a column less",
        scaled="(1, 32, 16, 16, 32) for (2, 32, 64, 128, 160)", **CRASH,
    ),
    Fault(
        "C05", "LSTM with dropout between its layers, under no_grad", ("aten::miopen_rnn.default",),
        lambda call: call.args[9] > 0 and call.args[10], _segfault,
        lambda: _lstm(10, 20, 2, dropout=0.5), lambda: _lstm(10, 20, 2), "no dropout", **CRASH,
    ),
    Fault(
        "C08", "float64 product 1000 x 1000", ("aten::mm.default",),
        lambda call: call.args[0].dtype == torch.float64 and call.args[0].size(0) >= 1000, _segfault,
        lambda: normal(1000, 1000, dtype=torch.float64) @ normal(1000, 1000, dtype=torch.float64, seed=1),
        lambda: normal(1000, 1000) @ normal(1000, 1000, seed=1), "float32", **CRASH,
    ),
    Fault(
        "D02", "convolution whose solver search never ends", CONVOLUTION,
        lambda call: tuple(call.args[1].shape) == (4, 6, 7, 7), _for_ever,
        lambda: F.conv2d(normal(1, 6, 20, 20), normal(4, 6, 7, 7)),
        lambda: F.conv2d(normal(1, 6, 20, 20), normal(4, 6, 5, 5)), "another kernel",
        expected="unsupported", codes=("SUP103",), alone=True,
    ),
    Fault(
        "D04", "embedding with an index out of range: the CPU refuses, so the device is not asked",
        ("aten::embedding.default",), lambda call: int(call.args[1].max()) >= call.args[0].size(0), _for_ever,
        lambda: _embedding(10), lambda: _embedding(9), "the last index",
        expected="inconclusive", codes=("INC901",),
    ),
    Fault(
        "E01", "fp16 NCHW conv1d through a naive kernel", CONVOLUTION, _half_1d, _naive_kernel,
        lambda: F.conv1d(normal(1, 8, 64, dtype=torch.float16), normal(24, 8, 3, dtype=torch.float16)),
        lambda: F.conv1d(normal(1, 8, 64), normal(24, 8, 3)), "float32", **FALLBACK,
    ),
    Fault(
        "E05", "conv1d without workspace: warning and naive kernel", CONVOLUTION,
        lambda call: tuple(call.args[1].shape) == (28, 8, 1, 3), _no_workspace,
        lambda: F.conv1d(normal(1, 8, 64), normal(28, 8, 3)), lambda: F.conv1d(normal(1, 8, 64), normal(27, 8, 3)),
        "another shape", **FALLBACK,
    ),
    Fault(
        "F01", "attention falls to math without a word", SDPA, lambda call: call.args[0].size(-1) == 40, _math,
        lambda: _attend(32, 40), lambda: _attend(32, 48), "another head_dim", **FALLBACK,
    ),
    Fault(
        "F02", "attention with a mask: not compiled with flash attention", SDPA,
        lambda call: argument(call, 3, "attn_mask") is not None and call.args[0].size(-1) == 56,
        _told("1Torch was not compiled with flash attention."),
        lambda: _attend(32, 56, mask=True), lambda: _attend(32, 56), "no mask", **FALLBACK,
    ),
    Fault(
        "F04", "fp32 bmm with TF32 allowed: rocBLAS instead of hipBLASLt", ("aten::bmm.default",),
        lambda call: call.args[0].dtype == torch.float32 and torch.backends.cuda.matmul.fp32_precision == "tf32",
        _told("gemm_and_bias error: HIPBLAS_STATUS_NOT_SUPPORTED when calling hipblasLtMatmul with transpose_mat1 0 "
              "transpose_mat2 0 m 24 n 24 k 24. Will attempt to recover by calling unfused cublas path."),
        lambda: _bmm(tf32=True), lambda: _bmm(tf32=False), "TF32 not allowed", **FALLBACK,
    ),
)  # fmt: skip
