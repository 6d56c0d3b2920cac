"""Operations of matrix products: two for every multiplication that is added up, as torch's flop_counter counts them.

``outer`` and ``ger`` add nothing up, and count one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from audit.rules.work.call import Amount, Call, Unsaid, read_once, size_bytes, sound, tensors_in
from audit.schema import TensorSpec


def _amount(flops: float, read: list[TensorSpec], written: tuple[int, ...], dtype: str) -> Amount:
    """``read`` begins with the factors."""
    return Amount(flops, read[0].dtype, read_once(read), size_bytes(written, dtype))


def _matrices(call: Call, place: int, names: tuple[str, str], n_dims: int) -> tuple[TensorSpec, TensorSpec]:
    left, right = call.tensor(place, names[0], n_dims), call.tensor(place + 1, names[1], n_dims)
    if left.sizes[:-2] != right.sizes[:-2] or left.sizes[-1] != right.sizes[-2]:
        raise Unsaid("sizes that fit")
    return left, right


def _plain(n_dims: int) -> Callable[[Call], Amount]:
    """``mm`` and ``bmm``, with another dtype of the result or without; ``_int_mm``."""

    def count(call: Call) -> Amount:
        left, right = _matrices(call, 0, ("self", "mat2"), n_dims)
        sizes = (*left.sizes[:-1], right.sizes[-1])
        given = "int32" if call.base == "_int_mm" else call.dtype(2, "out_dtype", left.dtype)
        return _amount(2.0 * prod(sizes) * left.sizes[-1], [left, right], sizes, given)

    return count


def _with_addend(n_dims: int, names: tuple[str, str], adds_up: bool = False) -> Callable[[Call], Amount]:
    """``addmm``, ``baddbmm``, ``addbmm``: an addend that is multiplied by zero is not read."""

    def count(call: Call) -> Amount:
        left, right = _matrices(call, 1, names, n_dims)
        sizes = (*left.sizes[:-1], right.sizes[-1])
        flops = 2.0 * prod(sizes) * left.sizes[-1]
        return _amount(flops, [left, right, *_addend(call)], sizes[1:] if adds_up else sizes, left.dtype)

    return count


def _addend(call: Call) -> list[TensorSpec]:
    addend = call.get(0, "self")
    return [sound(addend)] if isinstance(addend, TensorSpec) and call.get(3, "beta", 1) != 0 else []


def _scaled(call: Call) -> Amount:
    """``self, mat2, scale_a, scale_b, bias, scale_result, out_dtype``; the default is the factors' own dtype."""
    left, right = _matrices(call, 0, ("self", "mat2"), 2)
    sizes = left.sizes[0], right.sizes[1]
    rest = [spec for spec in call.operands(without=("out",)) if spec is not left and spec is not right]
    given = call.dtype(6, "out_dtype", left.dtype)
    return _amount(2.0 * prod(sizes) * left.sizes[1], [left, right, *rest], sizes, given)


def _grouped(call: Call) -> Amount:
    """Groups along a dimension that both or one of the two matrices have once."""
    left, right = call.tensor(0, "mat_a"), call.tensor(1, "mat_b")
    dims = len(left.sizes), len(right.sizes)
    if dims == (3, 3):
        return _plain(3)(call)
    if not set(dims) <= {2, 3}:
        raise Unsaid("two matrices")
    rows, inner, columns = left.sizes[-2], left.sizes[-1], right.sizes[-1]
    written = (rows, columns) if 3 in dims else (0,)  # two matrices: one product a group, and no word on how many
    return _amount(2.0 * rows * inner * columns, [left, right], written, left.dtype)


def _with_vector(place: int) -> Callable[[Call], Amount]:
    """``mv``, and ``addmv`` with an addend before it."""

    def count(call: Call) -> Amount:
        matrix, vector = call.tensor(place, "mat" if place else "self", 2), call.tensor(place + 1, "vec", 1)
        addend = _addend(call) if place else []
        return _amount(2.0 * prod(matrix.sizes), [matrix, vector, *addend], matrix.sizes[:1], matrix.dtype)

    return count


def _dot(call: Call) -> Amount:
    left, right = call.tensor(0, "self", 1), call.tensor(1, "tensor", 1)
    return _amount(2.0 * left.sizes[0], [left, right], (1,), left.dtype)


def _outer(place: int) -> Callable[[Call], Amount]:
    def count(call: Call) -> Amount:
        names = ("vec1", "vec2") if place else ("self", "vec2")
        left, right = call.tensor(place, names[0], 1), call.tensor(place + 1, names[1], 1)
        sizes = left.sizes[0], right.sizes[0]
        addend = _addend(call) if place else []
        return _amount(float(prod(sizes)), [left, right, *addend], sizes, left.dtype)

    return count


def _linear(call: Call) -> Amount:
    given, weight = call.tensor(0, "input"), call.tensor(1, "weight", 2)
    bias = tensors_in(call.get(2, "bias"))
    sizes = (*given.sizes[:-1], weight.sizes[0])
    return _amount(2.0 * prod(given.sizes) * weight.sizes[0], [given, weight, *map(sound, bias)], sizes, given.dtype)


def _matmul(call: Call) -> Amount:
    """Of vectors, matrices and batches of them, of which one is repeated for the other."""
    left, right = call.tensor(0, "self"), call.tensor(1, "other")
    rows, columns = left.sizes[-2:-1], right.sizes[-1:] if len(right.sizes) > 1 else ()
    sizes = (*broadcast(left.sizes[:-2], right.sizes[:-2]), *rows, *columns)
    return _amount(2.0 * prod(sizes) * left.sizes[-1], [left, right], sizes, left.dtype)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The sizes that these are repeated to. Raises Unsaid where they do not fit."""
    sizes: list[int] = []
    for place in range(1, max(map(len, shapes), default=0) + 1):
        here = {shape[-place] for shape in shapes if len(shape) >= place} - {1}
        if len(here) > 1:
            raise Unsaid("sizes that fit")
        sizes.append(here.pop() if here else 1)
    return tuple(reversed(sizes))


def _einsum(call: Call) -> Amount:
    """Of two tensors with a letter for each dimension: a multiplication for every combination of letters."""
    equation, tensors = call.get(0, "equation"), list(map(sound, tensors_in(call.get(1, "tensors"))))
    if not isinstance(equation, str) or "->" not in equation or len(tensors) != 2:
        raise Unsaid("an equation of two tensors")
    terms, _, result = equation.replace(" ", "").partition("->")
    letters: dict[str, int] = {}
    for term, tensor in zip(terms.split(","), tensors, strict=False):
        if not term.isalpha() or len(term) != len(tensor.sizes):
            raise Unsaid("a letter for each dimension")
        letters.update(zip(term, tensor.sizes, strict=True))
    if terms.count(",") != 1 or not set(result) <= set(letters):
        raise Unsaid("a result of these letters")
    sizes = tuple(letters[letter] for letter in result)
    return _amount(2.0 * prod(letters.values()), tensors, sizes, tensors[0].dtype)


PRODUCTS: Mapping[str, Callable[[Call], Amount]] = {
    "mm": _plain(2),
    "bmm": _plain(3),
    "_int_mm": _plain(2),
    "addmm": _with_addend(2, ("mat1", "mat2")),
    "_addmm_activation": _with_addend(2, ("mat1", "mat2")),
    "baddbmm": _with_addend(3, ("batch1", "batch2")),
    "addbmm": _with_addend(3, ("batch1", "batch2"), adds_up=True),
    "_scaled_mm": _scaled,
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
    "mv": _with_vector(0),
    "addmv": _with_vector(1),
    "dot": _dot,
    "vdot": _dot,
    "outer": _outer(0),
    "ger": _outer(0),
    "addr": _outer(1),
    "linear": _linear,
    "matmul": _matmul,
    "einsum": _einsum,
}
