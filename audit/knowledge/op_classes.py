"""What sort of work an aten op does: a matrix product, a copy, a view; by name, with the source of each answer."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Literal, TypeAlias, cast

from audit.knowledge.tables import globs, matches, rows

#: ``copy`` moves or fills bytes and computes nothing; ``view`` gives another look at bytes, or asks about a tensor;
#: ``optimizer`` holds the kernels over lists of tensors (``_foreach_*``) beside the fused steps.
OpClass: TypeAlias = Literal[
    "gemm", "convolution", "attention", "normalization", "softmax", "reduction", "elementwise", "copy", "gather",
    "scatter", "sort", "recurrent", "fft", "linalg", "optimizer", "random", "loss", "pooling", "view", "other",
]  # fmt: skip


@cache
def class_of(op: str) -> OpClass:
    """Of ``aten::add.Tensor``; an overload that is not known, or not told, has the class of the others of its name.

    An op that the table does not have, since it is of another torch, has that of its name's glob. ``other`` outside of
    aten.
    """
    found = _by_op().get(op) or _by_base().get(op.partition(".")[0])
    namespace, _, name = op.partition("::")
    if found is not None or namespace != "aten":
        return found or "other"
    base = name.partition(".")[0]
    plain = base if base.endswith("__") else base.rstrip("_")
    return next((op_class for patterns, op_class in _by_glob() if matches(plain, patterns)), "other")


@cache
def _by_op() -> Mapping[str, OpClass]:
    return {row["op"]: cast(OpClass, row["op_class"]) for row in rows("op_classes.csv") if "::" in row["op"]}


@cache
def _by_base() -> Mapping[str, OpClass]:
    """By the name without its overload: the class of the first that does not write into an argument it is given."""
    found: dict[str, OpClass] = {}
    for op, op_class in _by_op().items():
        base, _, overload = op.partition(".")
        if not overload.endswith("out"):
            found.setdefault(base, op_class)
    return found


@cache
def _by_glob() -> tuple[tuple[tuple[str, ...], OpClass], ...]:
    table = (row for row in rows("op_classes.csv") if "::" not in row["op"])
    return tuple((globs(row["op"]), cast(OpClass, row["op_class"])) for row in table)
