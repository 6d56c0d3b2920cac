"""Ops and overloads that torch has given up since a recording was made, and what stands in their place now."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from audit.schema import Arg

Args = tuple[Arg, ...]


@dataclass(frozen=True)
class Renaming:
    """``op`` is called now; ``arguments`` makes its positional arguments of the old ones. ``source`` is the change."""

    op: str
    source: str
    arguments: Callable[[Args], Args] = lambda args: args


def _vec_backward(n_dims: int, n_between: int) -> Callable[[Args], Args]:
    """(grad, output size or None, input size, [align_corners], scale factors or None) with the scales one by one.

    Without an output size it is the input's, scaled and rounded down, as compute_output_size of ATen/native/UpSample.h.
    """

    def rewritten(args: Args) -> Args:
        padded: list[Arg] = [*args, *[None] * (4 + n_between - len(args))]
        grad, output_size, input_size, *between = padded
        factors = between[n_between]
        scales = factors if isinstance(factors, tuple) else (None,) * n_dims
        if output_size is None and isinstance(input_size, tuple):
            output_size = tuple(
                math.floor(size * scale)
                for size, scale in zip(input_size[2:], scales, strict=False)
                if isinstance(size, int) and isinstance(scale, (int, float))
            )
        return (grad, output_size, input_size, *between[:n_between], *scales)

    return rewritten


_NO_SYMINT = "https://github.com/pytorch/pytorch/pull/83628"
_VEC_COMPOSITE = "https://github.com/pytorch/pytorch/pull/85638"
_ADJOINTS = "https://github.com/pytorch/pytorch/pull/85542"

#: Old qualified overload -> what it is now. Used only where the installed torch does not have the old one.
RENAMED: Mapping[str, Renaming] = {
    "aten::sum.SymInt": Renaming("aten::sum.dim_IntList", "https://github.com/pytorch/pytorch/pull/83591"),
    "aten::empty.SymInt": Renaming("aten::empty.memory_format", _NO_SYMINT),
    "aten::slice.SymInt": Renaming("aten::slice.Tensor", _NO_SYMINT),
    "aten::im2col_backward.default": Renaming("aten::col2im.default", _ADJOINTS),
    "aten::col2im_backward.default": Renaming("aten::im2col.default", _ADJOINTS),
    **{
        f"aten::upsample_{mode}{n_dims}d_backward.vec": Renaming(
            f"aten::upsample_{mode}{n_dims}d_backward.default",
            _VEC_COMPOSITE,
            _vec_backward(n_dims, 0 if mode.startswith("nearest") else 1),
        )
        for mode, n_dims in (
            *(("nearest", n) for n in (1, 2, 3)),
            ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3),
        )
    },
}  # fmt: skip


def renaming_of(op: str) -> Renaming | None:
    """What an overload that torch has no more is called now: by the table, else ``X.SymInt`` is ``X.default``."""
    if op in RENAMED:
        return RENAMED[op]
    base, _, overload = op.rpartition(".")
    return Renaming(f"{base}.default", _NO_SYMINT) if overload == "SymInt" else None
