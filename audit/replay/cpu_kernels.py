"""CPU kernels that are missing for one dtype, or too slow to wait for, and what computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from audit.codec import tensors_of
from audit.replay.overload import resolve
from audit.schema import Arg, Case, Named, TensorSpec

#: Op and dtype of operands for which the CPU has no kernel of a library: gradients of convolutions in fp16 run at 0.3
#: GFLOP/s a core, in fp32 at 45 (torch 2.13, oneDNN; a ResNet-50 step would take an hour instead of minutes).
_IN_FP32: frozenset[tuple[str, str]] = frozenset((("aten::convolution_backward.default", "float16"),))
#: The gradient of a softmax from fp16 to fp32, which a GPU has in one kernel: fp32 in, fp16 out.
_TO_HALF = frozenset(("aten::_softmax_backward_data.default", "aten::_log_softmax_backward_data.default"))
NOTE = "the CPU computed it in fp32 and rounded to fp16, where its own kernel is a hundred times slower"


def runs_in_fp32(case: Case) -> bool:
    """Whether the reference of a case is computed in fp32 and rounded to the case's own dtype."""
    return any((case.op, spec.dtype) in _IN_FP32 for spec in tensors_of(case.args, case.kwargs))


def cpu_op(case: Case) -> Callable[..., Any]:
    """What is called on the CPU for a case. Raises AttributeError for an op that this torch does not know."""
    op = resolve(case.op)
    if case.op in _TO_HALF and Named("dtype", "float16") in case.args[3:] and _dtype_of(case.args[0]) == "float32":
        return lambda grad, output, dim, input_dtype: op(grad, output, dim, grad.dtype).to(input_dtype)
    return _through_fp32(op) if runs_in_fp32(case) else op


def _dtype_of(arg: Arg) -> str:
    return arg.dtype if isinstance(arg, TensorSpec) else ""


def _through_fp32(op: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        result = op(*map(_up, args), **{name: _up(value) for name, value in kwargs.items()})
        return tuple(map(_down, result)) if isinstance(result, tuple) else _down(result)

    return run


def _up(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype is torch.float16 else value


def _down(value: Any) -> Any:
    return value.half() if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value
