"""CPU kernels that are wrong in one dtype, or too slow to wait for, and the way around them by fp32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

_HALVES = (torch.float16, torch.bfloat16)
#: fp16 has no kernel of a library: 0.3 GFLOP/s a core against 45 in fp32 (torch 2.13, oneDNN). The gradients of a
#: ResNet-50 step would take an hour instead of minutes.
_SLOW = "whose own kernel is a hundred times slower"
#: Places in an image are computed in the dtype of the grid, which has 11 or 8 bits: beyond some 64 pixels results are
#: wrong, at 352 they are NaN here and there, or the process ends with SIGSEGV (seen in torch 2.13).
_WRONG = "whose own kernel computes places in that dtype, and reads outside of large images"
#: Op (without overload) -> dtypes in which the CPU's own kernel is not used, and why not.
_IN_FP32: Mapping[str, tuple[tuple[torch.dtype, ...], str]] = {
    "aten::convolution_backward": ((torch.float16,), _SLOW),
    **{f"aten::grid_sampler{form}": (_HALVES, _WRONG) for form in ("", "_2d", "_3d", "_2d_backward", "_3d_backward")},
}


def detour(op: str, dtypes: Iterable[torch.dtype]) -> tuple[torch.dtype, str] | None:
    """The dtype of a call that is computed in fp32 and rounded to it, and why; ``op`` is without overload."""
    if op not in _IN_FP32:
        return None
    shunned, reason = _IN_FP32[op]
    return next(((dtype, reason) for dtype in dtypes if dtype in shunned), None)


def through_fp32(op: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """``op`` on operands in fp32 where they have ``dtype``, and what it gives in ``dtype`` again."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = op(*(_up(arg, dtype) for arg in args), **{name: _up(arg, dtype) for name, arg in kwargs.items()})
        return tuple(_down(item, dtype) for item in result) if isinstance(result, tuple) else _down(result, dtype)

    return run


def _up(value: Any, dtype: torch.dtype) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype is dtype else value


def _down(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is torch.float32 else value
