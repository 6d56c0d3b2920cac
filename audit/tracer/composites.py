"""Composites that choose their kernel by device, caught whole before they choose.

Below autograd a tracer sees what the *tracing* machine picked (``_scaled_dot_product_flash_attention_for_cpu``), not
what a HIP device would. So these ops get a Python kernel on the autograd keys, which hands the call to the recorder
and goes on with the C++ composite kernel. ``op.decompose`` is not used: 39 overloads have Python decompositions that
change bits (LSTM and GRU by 1e-6, torch 2.13).

The kernel is not called under ``inference_mode``; there the composite itself arrives at the dispatch mode.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._C import DispatchKey

#: Ops without a kernel of their own, whose C++ composite picks by device, each with what it picks. Overloads that an
#: older torch lacks are passed over. Complete for torch 2.13: tests/fidelity compares the ops below autograd on the CPU
#: with those of a GPU for some 10,000 calls, and finds no other composite that differs.
COMPOSITES: Mapping[str, str] = {
    "scaled_dot_product_attention": "a fused kernel of the device, or matmuls and softmax",
    "batch_norm": "MIOpen, cuDNN or native_batch_norm",
    **dict.fromkeys(
        ("lstm.input", "lstm.data", "gru.input", "gru.data", "rnn_tanh.input", "rnn_tanh.data", "rnn_relu.input",
         "rnn_relu.data"),
        "MIOpen or cuDNN, oneDNN on the CPU, or a matmul for each step",
    ),
    "lstm_cell": "_thnn_fused_lstm_cell on a GPU, chunks and sigmoids on the CPU",
    "gru_cell": "_thnn_fused_gru_cell on a GPU, chunks and sigmoids on the CPU",
    "ctc_loss.IntList": "cuDNN or MIOpen for lengths they take, else _ctc_loss",
    "ctc_loss.Tensor": "cuDNN or MIOpen for lengths they take, else _ctc_loss",
    "dropout": "native_dropout on a GPU, bernoulli_ and div_ on the CPU",
    "rms_norm": "_fused_rms_norm on a GPU, pow, mean and mul on the CPU",
    "grid_sampler": "cudnn_grid_sampler on some GPUs",
    "softmax.int": "one kernel from fp16 to fp32 on a GPU, a conversion and a kernel on the CPU",
    "log_softmax.int": "one kernel from fp16 to fp32 on a GPU, a conversion and a kernel on the CPU",
    "one_hot": "looks at the smallest and largest index on the CPU alone",
    **dict.fromkeys(
        ("layer_norm", "group_norm", "embedding_bag", "embedding_bag.padding_idx"),
        # In bf16 a GPU keeps the statistics of a norm in fp32, the CPU in bf16, and a backward fed with the other's
        # raises.
        "the same kernel everywhere, with private outputs that differ by device",
    ),
}  # fmt: skip


def _from_half_to_float(tensor: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> bool:
    return tensor.dtype is torch.float16 and dtype is torch.float32


#: When a composite that is called everywhere chooses by device; all other calls of it go on in parts.
_CHOOSES_WHEN: Mapping[str, Callable[..., bool]] = {
    "aten::softmax.int": _from_half_to_float,
    "aten::log_softmax.int": _from_half_to_float,
}

#: Ops that exist for one vendor or for the CPU alone: in a trace that is to be replayed elsewhere they mean that a
#: composite was missed.
_VENDOR_OP = re.compile(r"^aten::(_?cudnn_|_?mkldnn_|miopen_|mps_|_mps_|_cslt_|.*_for_cpu(\.|_))")

Interceptor = Callable[[torch._ops.OpOverload, tuple[Any, ...], dict[str, Any]], Any]


def find_overload(name: str) -> torch._ops.OpOverload | None:
    """``lstm.input`` to the op overload of this torch, None where it has none."""
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, overload or "default", None) if packet is not None else None


def is_vendor_op(qualified: str) -> bool:
    """Whether ``aten::cudnn_batch_norm.default`` and the like: an op that only one device has."""
    return _VENDOR_OP.match(qualified) is not None


def run_composite(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The C++ composite kernel of ``op``."""
    return op._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


def run_dispatched_composite(op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The same for a composite that arrived at the dispatch mode (only under ``inference_mode``).

    The way there excludes the ADInplaceOrView key, and a view of a parameter made without it does not require grad, by
    which ``matmul`` picks bmm instead of mm.
    """
    with torch._C._SetExcludeDispatchKeyGuard(DispatchKey.ADInplaceOrView, False):
        return run_composite(op, args, kwargs)


def is_composite(op: torch._ops.OpOverload) -> bool:
    """Whether the op is only a composition of others on every device.

    Some ops (``silu_backward``) have a composite kernel for unknown devices beside real ones for CPU and CUDA, and the
    two differ in the last bit.
    """
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(op.name(), "CompositeImplicitAutograd") and not any(
        has_kernel(op.name(), key) for key in ("CPU", "CUDA")
    )


class CompositeKernels:
    """The Python kernels, registered from ``install`` to ``remove``; ``intercept`` gets every call of a composite."""

    def __init__(self, intercept: Interceptor) -> None:
        self._intercept = intercept
        self._library: torch.library.Library | None = None
        self.overloads: frozenset[torch._ops.OpOverload] = frozenset(
            op for name in COMPOSITES if (op := find_overload(name)) is not None and is_composite(op)
        )

    def takes(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether this call of ``op`` is taken whole."""
        if op not in self.overloads:
            return False
        chooses = _CHOOSES_WHEN.get(op.name())
        return chooses is None or chooses(*args, **kwargs)

    def install(self) -> None:
        self._library = torch.library.Library("aten", "IMPL")
        for op in self.overloads:
            for key in ("AutogradCPU", "AutogradCUDA"):
                self._library.impl(op.name().removeprefix("aten::"), self._kernel(op), key)

    def remove(self) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def _kernel(self, op: torch._ops.OpOverload) -> Callable[..., Any]:
        intercept = self._intercept

        def kernel(*args: Any, **kwargs: Any) -> Any:
            if not self.takes(op, args, kwargs):
                return run_composite(op, args, kwargs)
            return intercept(op, args, kwargs)

        return kernel
