"""CPU kernels that are missing or wrong in one dtype, or too slow to wait for, and the way around them by a wider."""

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
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_MISSING = "for which it has no kernel"
#: Op (without overload) -> dtypes in which the CPU's own kernel is not used, and why not.
_IN_WIDER: Mapping[str, tuple[tuple[torch.dtype, ...], str]] = {
    "aten::convolution_backward": ((torch.float16,), _SLOW),
    "aten::histc": (_INTEGERS, _MISSING),
    **{f"aten::grid_sampler{form}": (_HALVES, _WRONG) for form in ("", "_2d", "_3d", "_2d_backward", "_3d_backward")},
}


def detour(op: str, dtypes: Iterable[torch.dtype]) -> tuple[torch.dtype, str] | None:
    """The dtype of a call that is computed in a wider one and converted back, and why; ``op`` is without overload."""
    if op not in _IN_WIDER:
        return None
    shunned, reason = _IN_WIDER[op]
    return next(((dtype, reason) for dtype in dtypes if dtype in shunned), None)


def wider(dtype: torch.dtype) -> torch.dtype:
    """fp64 for an integer, of which it holds 53 bits, fp32 for a half."""
    return torch.float32 if dtype.is_floating_point else torch.float64


def through_wider(op: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """``op`` on operands in the wider dtype where they have ``dtype``, and what it gives in ``dtype`` again."""

    def up(value: Any) -> Any:
        return value.to(wider(dtype)) if isinstance(value, torch.Tensor) and value.dtype is dtype else value

    def down(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.dtype is wider(dtype) else value

    def run(*args: Any, **kwargs: Any) -> Any:
        result = op(*map(up, args), **{name: up(arg) for name, arg in kwargs.items()})
        return tuple(map(down, result)) if isinstance(result, tuple) else down(result)

    return run
