"""Bytes of gathers and scatters: indices whole, and of the other operand only what they name.

Indices that are all alike name one row: where all values of an index were seen, its distinct ones count. An index that
nobody looked at is taken to name different rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from audit.codec import item_bytes
from audit.rules.work.call import Call, Unsaid, distinct_bytes, read_once, size_bytes, sound, tensors_in
from audit.rules.work.copies import first_tensor
from audit.rules.work.products import broadcast
from audit.schema import TensorSpec


def gathered(call: Call, result_bytes: float | None) -> tuple[float, float]:
    """(read, written) of ``embedding``, ``index_select``, ``index`` and such. ``result_bytes``, where it was seen."""
    source = first_tensor(call)
    others = call.operands(without=(0, *dict(call.case.kwargs)))
    if call.base in ("nonzero", "argwhere", "nonzero_static"):
        return distinct_bytes(source), result_bytes or 0.0
    formula = _ROWS.get(call.base)
    if formula is None or (result_bytes is not None and call.base in _BY_RESULT):
        result_bytes = _resampled(call, source) if result_bytes is None else result_bytes
        return read_once(others) + min(result_bytes, distinct_bytes(source)), result_bytes
    index, row = formula(call, source)
    n = prod(index.sizes)
    known = call.n_distinct(index) if call.base in _WHOLE_ROWS else None
    width = item_bytes(source.dtype)
    named = min(float(min(n, n if known is None else known) * row * width), distinct_bytes(source))
    n_results = _n_bags(call) if call.base in _BAGS else n
    written = result_bytes if result_bytes is not None else float(n_results * row * width)
    return read_once(others) + named, written


def _embedding(call: Call, source: TensorSpec) -> tuple[TensorSpec, int]:
    return _index(call, 1), prod(source.sizes[1:])


def _n_bags(call: Call) -> int:
    """Rows that are summed up, by where each sum begins."""
    return prod(call.tensor(2, "offsets", 1).sizes)


def _resampled(call: Call, source: TensorSpec) -> float:
    """The result of ``upsample_*``, where its sizes are given. Raises Unsaid for other ops."""
    if "upsample" not in call.base or len(source.sizes) < 3:
        raise Unsaid("the size of the result")
    sizes = call.numbers(1, "output_size", len(source.sizes) - 2)
    return size_bytes((*source.sizes[:2], *sizes), source.dtype)


def _index_select(call: Call, source: TensorSpec) -> tuple[TensorSpec, int]:
    return _index(call, 2), _row(call, source)


def _row(call: Call, source: TensorSpec) -> int:
    """Elements that one index names, along the dimension in the second place."""
    dim, n_dims = call.get(1, "dim"), len(source.sizes)
    if type(dim) is not int or not -n_dims <= dim < n_dims:
        raise Unsaid("a dimension")
    return prod(size for place, size in enumerate(source.sizes) if place != dim % n_dims)


def _gather(call: Call, source: TensorSpec) -> tuple[TensorSpec, int]:
    return _index(call, 2), 1


def _take(call: Call, source: TensorSpec) -> tuple[TensorSpec, int]:
    return _index(call, 1), 1


def _by_indices(call: Call, source: TensorSpec) -> tuple[TensorSpec, int]:
    """``index``: a list with an index, or None, for each of the first dimensions."""
    listed = call.get(1, "indices")
    tensors = [sound(spec) for spec in tensors_in(listed)]
    if not isinstance(listed, tuple) or not tensors or len(listed) > len(source.sizes):
        raise Unsaid("indices")
    if any(spec.dtype not in ("int64", "int32") for spec in tensors):
        raise Unsaid("how much a mask leaves")
    row = prod(s for place, s in enumerate(source.sizes) if place >= len(listed) or listed[place] is None)
    if len(tensors) == 1:
        return tensors[0], row
    sizes = broadcast(*(spec.sizes for spec in tensors))
    return TensorSpec(sizes, (0,) * len(sizes), "int64"), row


def _index(call: Call, place: int) -> TensorSpec:
    found = call.get(place, "index")
    if not isinstance(found, TensorSpec):
        raise Unsaid("an index")
    return sound(found)


_ROWS: Mapping[str, Callable[[Call, TensorSpec], tuple[TensorSpec, int]]] = {
    "embedding": _embedding,
    "embedding_bag": _embedding,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "index_select": _index_select,
    "index": _by_indices,
    "_unsafe_index": _by_indices,
    "gather": _gather,
    "take": _take,
}
_BAGS = frozenset(("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"))
_WHOLE_ROWS = _BAGS | {"embedding", "index_select", "index", "_unsafe_index"}
_BY_RESULT = frozenset(("index", "_unsafe_index"))


def scattered(call: Call) -> tuple[float, float | None]:
    """(read, written): in place, what the source holds; else the whole of the first operand, read and written."""
    if call.base == "embedding_dense_backward":
        return _embedding_gradient(call)
    if call.base in ("masked_scatter", "fill_diagonal"):  # who knows how many are true; the diagonal is small
        return 0.0 if call.in_place else distinct_bytes(first_tensor(call)), 0.0 if call.in_place else None
    if call.base not in _SOURCE:
        return read_once(call.operands(without=dict(call.case.kwargs))), None
    target, source = first_tensor(call), call.get(_SOURCE[call.base], "")
    rest = read_once(call.operands(without=(0, _SOURCE[call.base], *dict(call.case.kwargs))))
    given = distinct_bytes(sound(source)) if isinstance(source, TensorSpec) and not source.host else 0.0
    if call.base.startswith("scatter") and isinstance(source, TensorSpec):  # its index may be smaller
        given = min(given, float(prod(_index(call, 2).sizes) * item_bytes(source.dtype)))
    if not call.in_place:
        return rest + max(given, distinct_bytes(target)), size_bytes(target.sizes, target.dtype)
    return rest + given, min(given * _share_of_rows(call), distinct_bytes(target))


def _share_of_rows(call: Call) -> float:
    """Of the rows that are written, how many are different ones."""
    place = {"index_add": 2, "index_copy": 2, "index_put": 1}.get(call.base)
    indices = tensors_in(call.get(place, "")) if place is not None else []
    known = call.n_distinct(indices[0]) if len(indices) == 1 else None
    n = prod(sound(indices[0]).sizes) if indices else 0
    return 1.0 if known is None or not n else min(1.0, known / n)


def _embedding_gradient(call: Call) -> tuple[float, float]:
    """``gradient, indices, number of rows``: all rows are written, most with zeros."""
    gradient, n_rows = first_tensor(call), call.get(2, "num_weights")
    if type(n_rows) is not int or not 0 <= n_rows < 1 << 48 or not gradient.sizes:
        raise Unsaid("a number of rows")
    read = read_once([gradient, _index(call, 1)])
    return read, size_bytes((n_rows, gradient.sizes[-1]), gradient.dtype)


#: Where these have what they write.
_SOURCE = {
    "index_put": 2, "_index_put_impl": 2, "_unsafe_index_put": 2, "index_add": 3, "index_copy": 3, "index_reduce": 3,
    "index_fill": 3, "scatter": 3, "scatter_add": 3, "scatter_reduce": 3, "select_scatter": 1, "slice_scatter": 1,
    "diagonal_scatter": 1, "as_strided_scatter": 1, "put": 2,
}  # fmt: skip
