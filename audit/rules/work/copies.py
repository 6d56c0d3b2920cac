"""What copies, fills and random numbers write: the sizes of a new tensor, by the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from audit.codec import item_bytes
from audit.rules.work.call import Call, Unsaid, size_bytes, sound, tensors_in
from audit.schema import TensorSpec

#: Ops that make a tensor like their first argument and do not read it, or write over it whole.
UNREAD_FIRST = frozenset(
    """
    zeros_like ones_like full_like rand_like randn_like randint_like new_zeros new_ones new_full
    copy fill zero tril triu _foreach_copy _foreach_zero
    """.split()
)


def _like_first(call: Call) -> float:
    """A result of the first tensor's sizes, in the dtype that is asked for."""
    spec = first_tensor(call)
    named = dict(call.case.kwargs).get("dtype")
    wanted = call.dtype(1, "dtype", spec.dtype) if named is not None or call.base in _DTYPE_SECOND else spec.dtype
    return size_bytes(spec.sizes, wanted)


def first_tensor(call: Call) -> TensorSpec:
    """The first argument. Raises Unsaid where it is no tensor."""
    found = call.get(0, "self")
    if not isinstance(found, TensorSpec):
        raise Unsaid("a tensor")
    return sound(found)


def _of_sizes(place: int) -> Callable[[Call], float]:
    """``zeros``, ``new_zeros``, ``rand``: sizes at ``place``, the dtype by name or that of the tensor before."""

    def count(call: Call) -> float:
        sizes = _sizes(call, place)
        default = first_tensor(call).dtype if place else ""
        named = "dtype" in dict(call.case.kwargs)
        return size_bytes(sizes, call.dtype(len(call.case.args), "dtype", default) if named else default)

    return count


def _sizes(call: Call, place: int) -> tuple[int, ...]:
    found = call.get(place, "size")
    sizes = found if isinstance(found, tuple) else (found,)
    if not all(type(size) is int and 0 <= size < 1 << 48 for size in sizes):
        raise Unsaid("sizes")
    return tuple(size for size in sizes if type(size) is int)


def _joined(call: Call) -> float:
    """``cat`` and ``stack``: an element for each of its operands."""
    tensors = [sound(spec) for spec in tensors_in(call.get(0, "tensors"))]
    width = max((item_bytes(spec.dtype) for spec in tensors), default=0)
    if not width:
        raise Unsaid("a list of tensors")
    return float(width * sum(prod(spec.sizes) for spec in tensors))


def _repeated(call: Call) -> float:
    return size_bytes(first_tensor(call).sizes, first_tensor(call).dtype) * prod(_sizes(call, 1))


def _around(call: Call) -> float:
    """The gradient of a part: written is the whole, of which the sizes are given."""
    return size_bytes(_sizes(call, 1), first_tensor(call).dtype)


def _padded(call: Call) -> float:
    """Pairs of widths, the last dimension's first; one below zero cuts off."""
    sizes, pads = list(first_tensor(call).sizes), call.get(1, "pad")
    widths = [width for width in pads if type(width) is int] if isinstance(pads, tuple) else [0]
    if len(widths) % 2 or len(widths) > 2 * len(sizes):
        raise Unsaid("widths of a border")
    for place in range(len(widths) // 2):
        sizes[-1 - place] += widths[2 * place] + widths[2 * place + 1]
    if min(sizes, default=0) < 0:
        raise Unsaid("a border that fits")
    return size_bytes(sizes, first_tensor(call).dtype)


def _with_mask(call: Call) -> float:
    spec = first_tensor(call)
    return size_bytes(spec.sizes, spec.dtype) + prod(spec.sizes)


_DTYPE_SECOND = frozenset(("_to_copy", "zeros_like", "ones_like", "rand_like", "randn_like"))

WRITTEN: Mapping[str, Callable[[Call], float]] = {
    **dict.fromkeys(
        """
        clone contiguous copy fill zero _to_copy lift_fresh_copy alias_copy detach_copy view_copy permute_copy t_copy
        transpose_copy squeeze_copy unsqueeze_copy roll flip rot90 channel_shuffle native_channel_shuffle pixel_shuffle
        pixel_unshuffle resolve_conj resolve_neg tril triu zeros_like ones_like full_like rand_like randn_like
        randint_like dropout native_dropout_backward bernoulli normal uniform exponential random cauchy geometric
        log_normal
        """.split(),
        _like_first,
    ),
    **dict.fromkeys(("zeros", "ones", "full", "rand", "randn"), _of_sizes(0)),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), _of_sizes(1)),
    **dict.fromkeys(("cat", "concat", "stack", "_stack"), _joined),
    **dict.fromkeys(("slice_backward", "select_backward", "diagonal_backward"), _around),
    "constant_pad_nd": _padded,
    "repeat": _repeated,
    "native_dropout": _with_mask,
}
