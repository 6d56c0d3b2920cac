"""Ops that a ROCm build has no kernel for, and the texts with which it says so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves

#: Ops with a CPU kernel and no CUDA (so no HIP) kernel and no composite, from torchgen's native_functions.yaml of
#: torch 2.13.0; overloads fold into their name.
CPU_ONLY = frozenset({
    "_add_relu", "_convert_weight_to_int4pack_for_cpu", "_dyn_quant_matmul_4bit", "_dyn_quant_pack_4bit_weight",
    "_empty_affine_quantized", "_empty_per_channel_affine_quantized", "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts", "_histogramdd_from_bin_tensors", "_mkldnn_reshape", "_mkldnn_transpose",
    "_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_upsample_lanczos2d_aa", "_upsample_lanczos2d_aa_backward", "_weight_int4pack_mm_for_cpu", "_spdiags", "from_file",
    "histogram",
    "mkldnn_adaptive_avg_pool2d", "mkldnn_adaptive_avg_pool2d_backward", "mkldnn_linear", "mkldnn_linear_backward",
    "mkldnn_linear_backward_input", "mkldnn_linear_backward_weights", "mkldnn_max_pool2d", "mkldnn_max_pool2d_backward",
    "mkldnn_max_pool3d", "mkldnn_max_pool3d_backward", "mkldnn_reorder_conv2d_weight", "mkldnn_reorder_conv3d_weight",
    "mkldnn_rnn_layer", "mkldnn_rnn_layer_backward", "slow_conv3d_forward", "to_mkldnn",
})  # fmt: skip

#: ATen's name for the integral dtypes in AT_DISPATCH texts.
_SCALAR_NAMES = {
    torch.int64: "Long", torch.int32: "Int", torch.int16: "Short", torch.int8: "Char", torch.uint8: "Byte",
    torch.bool: "Bool",
}  # fmt: skip

#: GEMM entry points of Blas.cpp and the name in their AT_DISPATCH: BLAS libraries take no integers.
_BLAS_NAMES = {
    "mm": "addmm_cuda", "addmm": "addmm_cuda", "bmm": "baddbmm_cuda", "baddbmm": "baddbmm_cuda",
    "mv": "addmv_impl_cuda", "addmv": "addmv_impl_cuda",
}  # fmt: skip


def refuse_missing(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raises what a ROCm build raises when it has no kernel for ``func`` on these arguments; else does nothing."""
    if func.namespace != "aten":
        return
    base = str(func._schema.name).split("::")[-1].rstrip("_")
    if base in CPU_ONLY:
        raise NotImplementedError(could_not_run(func))
    if "cudnn" in base and not base.startswith("_use_cudnn"):
        raise RuntimeError(f"{base}: ATen not compiled with cuDNN support")
    if base in _BLAS_NAMES:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if tensors and tensors[0].dtype in _SCALAR_NAMES:
            name = _SCALAR_NAMES[tensors[0].dtype]
            raise NotImplementedError(f"\"{_BLAS_NAMES[base]}\" not implemented for '{name}'")


def could_not_run(func: OpOverload) -> str:
    """The dispatcher's text for a missing kernel; a ROCm build registers its kernels under CUDA."""
    name = func.name().removesuffix(".default")
    return (
        f"Could not run '{name}' with arguments from the 'CUDA' backend. This could be because the operator doesn't "
        "exist for this backend, or was omitted during the selective/custom build process (if using custom build). "
        "If you are a Facebook employee using PyTorch on mobile, please visit https://fburl.com/ptmfixes for possible "
        f"resolutions. '{name}' is only available for these backends: [CPU, Meta, BackendSelect, Python]."
    )
