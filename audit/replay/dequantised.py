"""Formulas in double precision of ops on quantised operands, by the documentation of each: a number times its scale.

Their operands hold few digits and are given exactly, so a kernel has no error but that of its sum and of rounding the
result; moving an fp8 operand by one of its steps, an eighth of its value, would hide any fault.
"""

# The parameters are those of the ops' schemas, in their order; the op's schema gives their types.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from audit.replay.overload import base_of


def formula_of(op: str) -> Callable[..., Any] | None:
    """For fp64 operands, None for an op that has a form in double precision of its own or no formula here."""
    return _FORMULAS.get(base_of(op))


def _scaled_mm(a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    """Scales of the whole, or of each row of ``a`` and column of ``b``; ``scale_result`` is for fp8 results."""
    result = _scaled(a, scale_a, 0) @ _scaled(b, scale_b, 1)
    result = result if bias is None else result + bias.double()
    return result if scale_result is None else result * scale_result


def _scaled(operand: Tensor, scale: Tensor, kept: int) -> Tensor:
    """Raises NotImplementedError for scales of blocks, of which nothing says here how they lie in memory."""
    per_row = list(scale.shape) == [operand.size(0), 1] if kept == 0 else list(scale.shape) == [1, operand.size(1)]
    if scale.numel() != 1 and not per_row:
        raise NotImplementedError("scales of blocks have no formula here")
    return operand.double() * scale.double()


def _weight_int8pack_mm(x, weight, scales):
    """Of [rows, inner] and int8 [columns, inner], with a scale for each column."""
    return x.double() @ (weight.double() * scales.double()[:, None]).t()


_FORMULAS: dict[str, Callable[..., Any]] = {"_scaled_mm": _scaled_mm, "_weight_int8pack_mm": _weight_int8pack_mm}
