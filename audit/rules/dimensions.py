"""What the dimensions of an output are called, where its op gives them a meaning."""

from __future__ import annotations

from dataclasses import dataclass

from audit.knowledge.op_classes import class_of
from audit.rules.kind_of_call import kind_of_call
from audit.schema import Arg, Case


@dataclass(frozen=True)
class Dimension:
    """What the indices of a dimension are called: one, and several."""

    one: str
    many: str


_BATCH = Dimension("batch entry", "batch entries")
_CHANNEL = Dimension("channel", "channels")
_HEAD = Dimension("head", "heads")
_QUERY = Dimension("query", "queries")
_KEY = Dimension("key", "keys")
_FEATURE = Dimension("feature", "features")
_ROW = Dimension("row", "rows")
_COLUMN = Dimension("column", "columns")
_PLANE = Dimension("plane", "planes")
_MATRIX = Dimension("matrix", "matrices")
_ELEMENT = Dimension("element", "elements")
_OUT, _IN = Dimension("output channel", "output channels"), Dimension("input channel", "input channels")
#: Where a convolution has its number of groups.
_GROUPS_AT = {
    "aten::convolution": 8, "aten::convolution_backward": 9, "aten::_convolution": 8, "aten::conv1d": 6,
    "aten::conv2d": 6, "aten::conv3d": 6,
}  # fmt: skip
_SPACE = {1: (_COLUMN,), 2: (_ROW, _COLUMN), 3: (_PLANE, _ROW, _COLUMN)}


#: Outputs that have the sizes of a convolution's weight, or of attention's keys and values.
_OF_WEIGHT = ("output 1", "gradient of operand 1")
_OF_KEYS = ("grad_key", "grad_value", "output 1", "output 2", "gradient of operand 1", "gradient of operand 2")


def dimensions(case: Case | None, output: str, n: int) -> tuple[Dimension, ...]:
    """Names for the ``n`` dimensions of an output of the case, by its class of op where that gives them a meaning."""
    op_class = class_of(case.op) if case is not None else "other"
    if op_class == "convolution" and n - 2 in _SPACE:
        return (*((_OUT, _IN) if output in _OF_WEIGHT else (_BATCH, _CHANNEL)), *_SPACE[n - 2])
    if op_class in ("pooling", "normalization") and n in (4, 5):
        return (_BATCH, _CHANNEL, *_SPACE[n - 2])
    if op_class == "attention" and n == 4:
        return _BATCH, _HEAD, _KEY if output in _OF_KEYS else _QUERY, _FEATURE
    if n <= 3:
        return ((), (_ELEMENT,), (_ROW, _COLUMN), (_MATRIX, _ROW, _COLUMN))[n]
    return (*(Dimension(f"slice (dim {i})", f"slices (dim {i})") for i in range(n - 2)), _ROW, _COLUMN)


def n_groups(case: Case | None, dimension: Dimension) -> int:
    """Of a convolution's channels; 1 for all else."""
    if case is None or dimension not in (_CHANNEL, _OUT):
        return 1
    kind, args = kind_of_call(case.op.partition(".")[0], case.args)
    found: Arg = dict(case.kwargs).get("groups", 1)
    if kind in _GROUPS_AT and _GROUPS_AT[kind] < len(args):
        found = args[_GROUPS_AT[kind]]
    return found if type(found) is int and found > 0 else 1
