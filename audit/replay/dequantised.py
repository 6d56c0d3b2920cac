"""Formulas of ops on quantised operands, by the documentation of each: a number times its scale, summed up.

Their operands hold few digits and are given exactly, so a kernel has no error but that of its sum and of rounding the
result; moving an fp8 operand by one of its steps, an eighth of its value, would hide any fault. In double precision a
formula is the reference; in single precision, with weights rounded as kernels round them, it has a kernel's noise.
"""

# The parameters are those of the ops' schemas, in their order, behind the dtype to compute in.
# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from audit.replay.block_scales import spread, spread_right, usually_swizzled
from audit.replay.inputs import torch_dtype
from audit.replay.int4_weights import packed, unpacked
from audit.replay.overload import arguments_of, base_of
from audit.schema import Case, Named, TensorSpec


def formula_of(case: Case, kind: torch.dtype = torch.float64) -> Callable[..., Any] | None:
    """For operands in fp64, computed in ``kind``; None for an op that needs none or has none here.

    A result in fp8 is held to its range: the CPU's kernels saturate, as cuBLAS and hipBLASLt do.
    """
    formula = _FORMULAS.get(base_of(case.op))
    if formula is None:
        return None
    dtype = result_dtype(case)
    limit = torch.finfo(dtype).max if dtype is not None and dtype.itemsize == 1 and dtype.is_floating_point else None

    def run(*args: Any, **kwargs: Any) -> Any:
        result = formula(kind, *args, **kwargs)
        return result if limit is None else result.clamp(-limit, limit)

    return run


def result_dtype(case: Case) -> torch.dtype | None:
    """What the call gives: as asked for, else as its first operand; None for formulas that keep to the op's own."""
    asked = arguments_of(case).get("out_dtype")
    if isinstance(asked, Named):
        return torch_dtype(asked.name)
    first = case.args[0] if case.args else None
    return torch_dtype(first.dtype) if isinstance(first, TensorSpec) and first.dtype[:3] in ("flo", "bfl") else None


# --- fp8 ---------------------------------------------------------------------------------------------------------


def _scaled_mm(kind, a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False):
    """``scale_result`` is for fp8 results."""
    return _product(kind, a, b, [scale_a], [scale_b], [usually_swizzled()], bias, scale_result)


def _scaled_mm_v2(
    kind, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias=None, out_dtype=None,
    contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    """Several scales of an operand are levels: of blocks, and of the whole."""
    if contraction_dim and tuple(contraction_dim) not in ((1, 0), (-1, -2), (-1, 0)):
        raise NotImplementedError(f"a product along {list(contraction_dim)} has no formula here")
    return _product(kind, a, b, scale_a, scale_b, [*swizzle_a, *swizzle_b], bias)


def _product(kind, a, b, scales_a, scales_b, swizzles, bias, scale_result=None):
    swizzled = any(swizzles)
    left, right = a.to(kind), b.to(kind)
    for scale in scales_a:
        left = left * spread(scale.to(kind), a.size(0), a.size(1), swizzled)
    for scale in scales_b:
        right = right * spread_right(scale.to(kind), b.size(0), b.size(1), swizzled)
    result = left @ right
    result = result if bias is None else result + bias.to(kind)
    return result if scale_result is None else result * scale_result.to(kind)


def _scaled_grouped_mm(
    kind, a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None, use_fast_accum=False
):
    """Scales of rows of ``a`` and columns of ``b``, those of each group behind the other's."""
    rows = scale_a.reshape(-1, a.size(-2)) if a.dim() == 3 or b.dim() == 2 else scale_a.reshape(1, -1)
    columns = scale_b.reshape(-1, b.size(-1)) if b.dim() == 3 or a.dim() == 2 else scale_b.reshape(1, -1)
    return _grouped(kind, a, b, offs, bias, rows.to(kind), columns.to(kind))


def _grouped_mm(kind, a, b, offs=None, bias=None, out_dtype=None):
    return _grouped(kind, a, b, offs, bias, None, None)


def _grouped(kind, a, b, offs, bias, rows, columns):
    """``rows`` and ``columns`` are the scales: of each group, or of all rows or columns together."""
    if bias is not None:
        raise NotImplementedError("a grouped product with a bias has no formula here")
    parts = []
    for group, span in _groups(a, b, offs):
        along_rows, along_columns = a.dim() == 2 and b.dim() == 3, a.dim() == 3 and b.dim() == 2
        left = a[group] if a.dim() == 3 else a[span] if along_rows else a[:, span]
        right = b[group] if b.dim() == 3 else b[:, span] if along_columns else b[span]
        left, right = left.to(kind), right.to(kind)
        if rows is not None:
            left = left * (rows[0, span] if along_rows else rows[group]).reshape(-1, 1)
            right = right * (columns[0, span] if along_columns else columns[group])
        parts.append(left @ right)
    if a.dim() == b.dim():
        return torch.stack(parts)
    return torch.cat(parts, 0 if a.dim() == 2 else 1)


def _groups(a: Tensor, b: Tensor, offs: Tensor | None) -> Iterator[tuple[int, slice]]:
    """Each group with what it has of the dimension that is divided; ``offs`` are the ends."""
    if offs is None:
        yield from ((group, slice(None)) for group in range(a.size(0)))
        return
    ends = [int(end) for end in offs]
    divided = a.size(0) if b.dim() == 3 else b.size(1) if a.dim() == 3 else a.size(1)
    if ends[-1] != divided or ends != sorted(ends):
        raise NotImplementedError("what lies behind the last group is not defined")
    yield from ((group, slice(start, end)) for group, (start, end) in enumerate(zip([0, *ends], ends, strict=False)))


# --- integers ----------------------------------------------------------------------------------------------------


def _weight_int8pack_mm(kind, x, weight, scales):
    """Of [rows, inner] and int8 [columns, inner], with a scale for each column."""
    return x.to(kind) @ (weight.to(kind) * scales.to(kind)[:, None]).t()


def _weight_int4pack_mm(kind, x, words, group, scales_and_zeros):
    """Of [rows, inner]; a weight is (q - 8) x scale + zero, for each ``group`` along the inner dimension.

    ``scales_and_zeros`` are [inner / group, columns, 2]. Kernels round the weight to bf16, x's dtype.
    """
    scales, zeros = scales_and_zeros.to(kind).repeat_interleave(group, 0).unbind(-1)
    weight = (unpacked(words).to(kind) - 8) * scales.t() + zeros.t()
    return x.to(kind) @ (weight if kind == torch.float64 else weight.to(torch.bfloat16).to(kind)).t()


def _convert_weight_to_int4pack(kind, weight, inner_tiles):
    return packed(weight, inner_tiles)


_FORMULAS: dict[str, Callable[..., Any]] = {
    "_scaled_mm": _scaled_mm,
    "_scaled_mm_v2": _scaled_mm_v2,
    "_scaled_grouped_mm": _scaled_grouped_mm,
    "_grouped_mm": _grouped_mm,
    "_weight_int8pack_mm": _weight_int8pack_mm,
    "_weight_int4pack_mm": _weight_int4pack_mm,
    "_convert_weight_to_int4pack": _convert_weight_to_int4pack,
}
