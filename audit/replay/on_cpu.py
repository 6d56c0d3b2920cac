"""What is called on the CPU for a case: its op, but where the CPU's own kernel is missing, wrong or too slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from audit.codec import tensors_of
from audit.device.cpu_kernels import detour, through_wider, wider
from audit.replay.overload import resolve
from audit.schema import Arg, Case, Named, TensorSpec

#: The gradient of a softmax from fp16 to fp32, which a GPU has in one kernel: fp32 in, fp16 out.
_TO_HALF = frozenset(("aten::_softmax_backward_data.default", "aten::_log_softmax_backward_data.default"))


def note_of(case: Case) -> str:
    """That the reference of a case is computed in a wider dtype and converted, and why; empty where it is not."""
    way = _detour(case)
    if way is None:
        return ""
    dtype, reason = way
    return f"the CPU computed it in {_short(wider(dtype))} and converted it to {_short(dtype)}, {reason}"


def cpu_op(case: Case) -> Callable[..., Any]:
    """What to call. Raises AttributeError for an op that this torch does not know."""
    op = resolve(case.op)
    if case.op in _TO_HALF and Named("dtype", "float16") in case.args[3:] and _dtype_of(case.args[0]) == "float32":
        return lambda grad, output, dim, input_dtype: op(grad, output, dim, grad.dtype).to(input_dtype)
    way = _detour(case)
    return op if way is None else through_wider(op, way[0])


def _detour(case: Case) -> tuple[torch.dtype, str] | None:
    dtypes = (getattr(torch, spec.dtype, None) for spec in tensors_of(case.args, case.kwargs))
    return detour(case.op.partition(".")[0], (dtype for dtype in dtypes if isinstance(dtype, torch.dtype)))


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _dtype_of(arg: Arg) -> str:
    return arg.dtype if isinstance(arg, TensorSpec) else ""
