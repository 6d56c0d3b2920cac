"""How far rounding alone may carry an element of an output: one number for all, or by element or row.

One large row must not excuse errors in the small ones. So noise is local for ops whose outputs are computed apart from
each other: by element where the op is elementwise (a few ULP and the condition of that element), by row for products,
softmax, attention and norms. Where a result jumps (``remainder``, ``round``), only elements near a jump may be on its
other side. Convolutions by Winograd tiles, transforms and scans mix neighbours: one number for all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch

from audit.codec import tensors_of
from audit.replay.compare import BLOCK, LocalNoise, eps_of
from audit.replay.overload import arguments_of, base_of
from audit.schema import Case

Locality = Literal["element", "jump", "row", "output"]

#: A row's own noise counts from this many elements on; of shorter rows several are taken together.
MIN_GROUP = 64

LOW_PRECISION = (torch.float16, torch.bfloat16)

#: Ops that compute each row apart in float32 (or better), and round once to a narrower dtype.
_ROUNDED_ONCE = frozenset(
    """
    mm bmm addmm baddbmm _addmm_activation linear matmul _softmax _log_softmax softmax log_softmax _safe_softmax
    _softmax_backward_data _log_softmax_backward_data native_layer_norm layer_norm _fused_rms_norm rms_norm
    native_layer_norm_backward _fused_rms_norm_backward sum mean logsumexp linalg_vector_norm norm var std
    """.split()
)
#: Ops that compute each row apart, with intermediate results (probabilities) in the narrow dtype.
_ROWS = ("_scaled_dot_product_", "_flash_attention_", "_efficient_attention_", "scaled_dot_product_attention",
         "embedding_bag", "_embedding_bag")  # fmt: skip

_FUSED = ("_fused_ada", "_fused_sgd")

#: Elementwise ops with jumps, where one ULP of an intermediate decides. So does ``rounding_mode``.
_JUMPS = frozenset(("remainder", "fmod", "floor_divide", "round"))

#: Special functions, of which libraries have rational approximations with absolute errors of their own.
_UNEVEN = frozenset("lgamma digamma polygamma igamma igammac mvlgamma erfinv i0 sinc logit ldexp".split())


def locality_of(case: Case, op: torch._ops.OpOverload) -> Locality:
    """How far apart the outputs of a numeric op are computed."""
    base = base_of(case.op)
    if base in _ROUNDED_ONCE or base.startswith(_ROWS):
        return "row"
    arguments = arguments_of(case)
    if torch.Tag.pointwise not in op.tags or base in _UNEVEN or base.startswith("special_"):
        return "output"
    if "reduction" in arguments or "dim" in arguments:
        return "output"
    return "jump" if base in _JUMPS or arguments.get("rounding_mode") else "element"


def rounds_once(case: Case) -> bool:
    """Whether narrow inputs need no allowance for steps of their own dtype on the way."""
    return base_of(case.op) in _ROUNDED_ONCE


def rounds_scalars(case: Case) -> bool:
    """Whether a GPU's kernel takes the call's numbers in float32, as it does its tensors: fused optimizers compute
    1 - beta2 in it, which is off by 1.3e-5 of itself for 0.999, where a CPU has it in double precision."""
    is_double = any(spec.dtype == "float64" for spec in tensors_of(case.args, case.kwargs))
    return base_of(case.op).startswith(_FUSED) and not is_double


def local_noise(
    locality: Locality,
    sizes: tuple[int, ...],
    dtype: torch.dtype,
    same: torch.Tensor,
    wide: torch.Tensor,
    moved: Sequence[torch.Tensor],
    overall: float,
) -> LocalNoise | None:
    """Noise by element or row; None where it is one for all, ``overall``. All tensors flat, of one output.

    ``moved`` are fp64 results with one input (or all, for rows) moved by a rounding step, for jumps some.
    """
    if locality == "output" or not moved or overall == 0.0 or wide.numel() < 2:
        return None
    if locality == "row":
        return _by_row(sizes, same, wide, moved)
    if locality == "jump":
        return _beside_jumps(same, wide, moved)
    return _by_element(dtype, same, wide, moved, overall)


# --- by row ------------------------------------------------------------------------------------------------------


def _by_row(
    sizes: tuple[int, ...], same: torch.Tensor, wide: torch.Tensor, moved: Sequence[torch.Tensor]
) -> LocalNoise | None:
    """Each row's own worst error, or the median row's where that is more: a quiet row may be quiet by chance."""
    group = 1
    for size in reversed(sizes):
        group *= size
        if group >= MIN_GROUP:
            break
    n_groups = wide.numel() // group
    if n_groups < 2 or group > BLOCK:
        return None
    worst = torch.zeros(n_groups, dtype=torch.float64)
    step = BLOCK // group
    for start in range(0, n_groups, step):
        part = slice(start * group, (start + step) * group)
        errors = [_difference(other[part], wide[part]) for other in (same, *moved)]
        worst[start : start + step] = torch.stack([e.reshape(-1, group).amax(1) for e in errors]).amax(0)
    return LocalNoise(worst.clamp_(min=float(worst.median())), group)


def _difference(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Absolute differences in fp64, 0 where either is not finite."""
    wide = torch.complex128 if b.dtype.is_complex else torch.float64
    error = a.to(wide) - b.to(wide)
    error = error.abs() if error.is_complex() else error.abs_()
    if not error.numel() or math.isfinite(float(error.max())):  # NaN too is the largest; to look for it costs thrice
        return error
    return torch.where(torch.isfinite(error), error, 0.0)


# --- beside jumps ------------------------------------------------------------------------------------------------


def _beside_jumps(same: torch.Tensor, wide: torch.Tensor, moved: Sequence[torch.Tensor]) -> LocalNoise:
    """What each element changes by: as much as the jump near one, and little elsewhere."""
    worst = torch.zeros(wide.numel(), dtype=torch.float64)
    for start in range(0, wide.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        for other in (same, *moved):
            worst[part] = torch.maximum(worst[part], _difference(other[part], wide[part]))
    return LocalNoise(worst, 1)


# --- by element --------------------------------------------------------------------------------------------------


def _by_element(
    dtype: torch.dtype, same: torch.Tensor, wide: torch.Tensor, moved: Sequence[torch.Tensor], overall: float
) -> LocalNoise:
    """The sum of what each input's rounding step changes, plus a step of the output: times the CPU's own worst error in
    that unit, so that a function which no library computes to the last bit is not held to it. Never above ``overall``.
    """
    eps = eps_of(str(dtype).removeprefix("torch."))
    smallest = torch.finfo(dtype).smallest_normal * eps
    values = torch.empty(wide.numel(), dtype=torch.float32 if dtype.itemsize < 8 else torch.float64)
    factor = 1.0
    for start in range(0, wide.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        step = _spacing(wide[part], eps, smallest)
        condition = _condition(wide[part], [other[part] for other in moved])
        values[part] = condition
        factor = max(factor, float((_difference(same[part], wide[part]) / (condition + step)).max()))
    for start in range(0, wide.numel(), BLOCK):
        part = slice(start, start + BLOCK)
        step = _spacing(wide[part], eps, smallest)
        unit = (values[part].double() + step) * factor
        plain = _spacing(wide[part], eps, 0.0)
        values[part] = (unit - plain).clamp_(min=smallest, max=overall)
    return LocalNoise(values, 1)


def _spacing(wide: torch.Tensor, eps: float, smallest: float) -> torch.Tensor:
    magnitude = wide.abs().to(torch.float64)
    return torch.where(torch.isfinite(magnitude), magnitude * eps, 0.0).clamp_(min=smallest)


def _condition(wide: torch.Tensor, moved: Sequence[torch.Tensor]) -> torch.Tensor:
    total = torch.zeros(wide.numel(), dtype=torch.float64)
    for other in moved:
        total += _difference(other, wide)
    return total
