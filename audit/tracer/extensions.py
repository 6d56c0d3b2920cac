"""Packages that bring kernels of their own, past the dispatcher: named when a program imports them, or tries in vain.

A program that falls back to aten ops where ``flash_attn`` is missing runs other kernels where it is installed; its
trace says nothing about those, and must not look as if it did.
"""

from __future__ import annotations

import mmap
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

#: Import names of packages with GPU kernels of their own (2026-11); what they register as torch ops is seen besides.
EXTENSIONS = frozenset(
    """
    aiter amp_C apex auto_gptq awq awq_ext bitsandbytes causal_conv1d causal_conv1d_cuda ctranslate2 cudf cuml
    cupy deep_ep deep_gemm deepspeed dgl exllamav2 fbgemm_gpu fla flash_attn flash_attn_2_cuda flash_attn_3_cuda
    flash_attn_interface flash_mla flashinfer fused_layer_norm_cuda gptqmodel gsplat kaolin liger_kernel
    lightseq llama_cpp mamba_ssm megablocks MinkowskiEngine mmcv natten nvdiffrast onnxruntime pycuda pyg_lib
    pytorch3d sageattention sageattn3 selective_scan_cuda sgl_kernel spconv tensorrt tensorrt_llm tilelang
    tinycudann torch_cluster torch_scatter torch_sparse torch_spline_conv torch_tensorrt torchsparse
    transformer_engine transformer_engine_torch triton_kernels unsloth vllm xformers
    """.split()
)

_IMPORTED = "imported: the kernels that it launches itself, past the dispatcher, are not audited"
_FAILED = "could not be imported here: what the program would run with it is not audited"
_COMPILED = "compiled extension: the aten ops that it calls are audited, kernels of its own are not"
#: Libraries of torch's own that need no mention: their kernels are registered ops.
_OWN = ("torch", "functorch", "torchvision", "torchaudio", "torchcodec")
#: What every extension links against, also where it needs nothing else of torch.
_TORCH_LIBRARY = b"libc10"
#: Where in a library the names of those that it needs are looked for.
_SEARCHED_BYTES = 16 << 20


class ImportWatch:
    """From ``install`` to ``remove`` a finder that finds nothing sees what the program asks for."""

    def __init__(self) -> None:
        self._tried: Counter[str] = Counter()

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> None:
        """Notes an import; ``importlib.util.find_spec`` comes here too, and is a question only."""
        if name in EXTENSIONS and sys._getframe(2).f_code.co_name == "_find_and_load_unlocked":
            self._tried[name] += 1

    def named(self) -> Iterator[tuple[str, str]]:
        """(what, reason) of each package of ``EXTENSIONS`` that was imported or tried, and of each compiled module."""
        for name in sorted(EXTENSIONS):
            if sys.modules.get(name) is not None:
                yield name, _IMPORTED
            elif self._tried[name]:
                yield name, _FAILED
        for name, module in sorted(sys.modules.items()):
            top = name.partition(".")[0]
            if top not in EXTENSIONS and top not in _OWN and _is_torch_extension(module):
                yield name, _COMPILED


def _is_torch_extension(module: ModuleType | None) -> bool:
    """Whether the module is a compiled library that needs torch's (``torch.utils.cpp_extension``, setup.py)."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith((".so", ".pyd", ".dylib")):
        return False
    try:
        with Path(file).open("rb") as library, mmap.mmap(library.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(_TORCH_LIBRARY, 0, _SEARCHED_BYTES) >= 0
    except (OSError, ValueError):  # gone since, or empty
        return False
