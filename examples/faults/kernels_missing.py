"""Ops without a kernel in some ROCm builds. Expect: unsupported (raised).

pytorch/pytorch#177559: no MAGMA in the wheel; pytorch/pytorch#173358: no int8 GEMM for the arch;
ROCm/pytorch#3376: a launch that HIP refuses.
"""


def raising(text, error=RuntimeError):
    def fault(call):
        raise error(text)

    return fault


FAULTS = {
    "aten::linalg_eig.default": raising(
        "Calling torch.linalg.eig on a CUDA tensor requires compiling PyTorch with MAGMA. "
        "Either transfer the tensor to the CPU before calling torch.linalg.eig or recompile with MAGMA."
    ),
    "aten::_int_mm.default": raising(
        "Could not run 'aten::_int_mm' with arguments from the 'CUDA' backend.", NotImplementedError
    ),
    "aten::upsample_nearest2d.default": raising("HIP error: invalid configuration argument"),
}
