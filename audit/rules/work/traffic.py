"""The fewest bytes that ops without a formula of their own must move, by what sort of work they do.

An operand that must be read is read once, whole; a result is written once. What cannot be told counts as nothing, so
that the sum stays the least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod

from audit.codec import item_bytes
from audit.knowledge.op_classes import OpClass
from audit.rules.work.call import Amount, Call, Unsaid, distinct_bytes, read_once, size_bytes, sound, tensors_in
from audit.rules.work.copies import UNREAD_FIRST, WRITTEN, first_tensor
from audit.rules.work.indexed import gathered, scattered
from audit.rules.work.products import broadcast
from audit.schema import TensorSpec


def moved(call: Call, op_class: OpClass, result_bytes: float | None) -> Amount:
    """Bytes by the class of the op; ``result_bytes`` are of its outputs, where they were seen. Raises Unsaid."""
    if op_class == "gather" or (call.base.startswith(_RESAMPLING) and not call.base.endswith("_backward")):
        read, written = gathered(call, result_bytes)
        return Amount(0.0, _dtype(call), read, written)
    if op_class == "scatter":
        read, by_formula = scattered(call)
    elif op_class in _WRITTEN:
        read, by_formula = _read(call, op_class), _or_none(_WRITTEN[op_class], call)
        if op_class == "copy" and (by_formula is None or call.base == "constant_pad_nd"):
            read = min(read, by_formula or result_bytes or 0.0)  # a part of the source, as far as anybody knows
    else:
        raise Unsaid(op_class)
    if by_formula is None or (result_bytes is not None and not call.in_place):
        by_formula = result_bytes or 0.0
    again, gradients = _backward(call, op_class) if call.case.grads is not None else (0.0, 0.0)
    if result_bytes is not None:  # has them already
        gradients = 0.0
    return Amount(0.0, _dtype(call), read + again, by_formula + gradients)


def _or_none(formula: Callable[[Call], float], call: Call) -> float | None:
    try:
        return formula(call)
    except Unsaid:
        return None


def _dtype(call: Call) -> str:
    tensors = [spec for _, argument in call.arguments for spec in tensors_in(argument)]
    return max(tensors, key=lambda spec: prod(spec.sizes)).dtype if tensors else ""


# --- read ----------------------------------------------------------------------------------------------------------


def _read(call: Call, op_class: OpClass) -> float:
    """Operands that are read whole. What is passed by keyword is an output, or small."""
    base, by_name = call.base, tuple(dict(call.case.kwargs))
    if base in _ONE_OF_A_ROW:
        return _one_of_a_row(call)
    if "ctc_loss" in base:
        raise Unsaid("which labels the targets have")
    unread: tuple[int | str, ...] = by_name
    drawn = op_class == "random" and "dropout" not in base and (call.in_place or call.case.op.endswith("bernoulli.p"))
    if base in UNREAD_FIRST or drawn:
        unread = (0, *by_name)
    elif base in _SIZES_ONLY:
        unread = (_SIZES_ONLY[base], *by_name)
    read = read_once(call.operands(without=unread))
    return read * (_pooled_share(call) if op_class == "pooling" else 0.5 if op_class == "linalg" else 1.0)


#: The target names one element of each row of the input.
_ONE_OF_A_ROW = {"nll_loss": 0, "nll_loss_forward": 0, "nll_loss2d_forward": 0, "nll_loss_backward": 1}
_ONE_OF_A_ROW |= {"nll_loss2d_backward": 1}


def _one_of_a_row(call: Call) -> float:
    """Forward: the target, and as many elements of the input. Backward reads no input."""
    place = _ONE_OF_A_ROW[call.base]
    given, target = call.get(place, "self"), call.get(place + 1, "target")
    if not isinstance(given, TensorSpec) or not isinstance(target, TensorSpec):
        raise Unsaid("an input and a target")
    picked = prod(sound(target).sizes) * item_bytes(given.dtype) if place == 0 else 0
    return distinct_bytes(target) + picked


#: Ops that are given an operand whose sizes they need and whose values they do not, and its place.
_SIZES_ONLY: Mapping[str, int] = {
    **dict.fromkeys(
        """
        max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward avg_pool3d_backward
        _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward adaptive_avg_pool3d_backward
        adaptive_max_pool2d_backward adaptive_max_pool3d_backward reflection_pad1d_backward reflection_pad2d_backward
        reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward replication_pad3d_backward
        grid_sampler_2d_backward grid_sampler_3d_backward rrelu_with_noise bucketize
        """.split(),
        1,
    ),
    **dict.fromkeys(("searchsorted", "trace", "batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"), 0),
    "log_sigmoid_backward": 2,
}
_RESAMPLING = ("upsample", "_upsample", "grid_sampler", "cudnn_grid_sampler")


def _pooled_share(call: Call) -> float:
    """Of the input, what any window covers: less than all where steps are wider than the window."""
    if "fractional" in call.base:
        return 0.0
    if "adaptive" in call.base or "unpool" in call.base or call.base.endswith("_backward"):
        return 1.0
    n = next((n for n in (1, 2, 3) if f"pool{n}d" in call.base), 0)
    if not n:
        return 1.0
    width = call.numbers(1, "kernel_size", n)
    steps = call.numbers(2, "stride", n, default=0)
    return prod(min(1.0, size / step) if step else 1.0 for size, step in zip(width, steps, strict=True))


# --- written -------------------------------------------------------------------------------------------------------


def _like_operands(call: Call) -> float:
    """Of an elementwise op: the sizes that its operands are repeated to."""
    if call.in_place:
        return distinct_bytes(first_tensor(call))
    if call.base == "where" and len(call.case.args) == 1:
        raise Unsaid("how many are true")
    tensors = call.operands(without=dict(call.case.kwargs))
    n = prod(broadcast(*(spec.sizes for spec in tensors))) if tensors else 0
    if call.base == "glu":
        n //= 2
    return float(n * _result_width(call, tensors))


def _result_width(call: Call, tensors: list[TensorSpec]) -> int:
    """Bytes of an element of the result: the widest of floats; where other dtypes take part, the least possible."""
    if call.base in _BOOLEAN or call.base.startswith(("logical_", "quantize_")):
        return 1
    widths = [item_bytes(spec.dtype) for spec in tensors if spec.sizes] or [item_bytes(s.dtype) for s in tensors]
    if not widths or 0 in widths:
        raise Unsaid("element types")
    if all(spec.dtype.startswith(("float", "bfloat")) for spec in tensors):
        return max(widths)
    n_complex = sum(spec.dtype.startswith("complex") for spec in tensors)
    return min(widths) // 2 if n_complex else min(min(widths), 4)


_BOOLEAN = frozenset(
    """
    eq ne lt le gt ge greater greater_equal less less_equal not_equal isnan isinf isfinite isneginf isposinf isclose
    isreal signbit
    """.split()
)


def _like_input(call: Call) -> float:
    """Of a norm: its input's sizes; backward only where the gradient of the input is asked for."""
    spec = first_tensor(call)
    if call.base.endswith(("stats", "stats_with_counts", "reduce")):
        return 0.0
    mask = next((a for a in reversed(call.case.args) if isinstance(a, tuple) and a and isinstance(a[0], bool)), None)
    return size_bytes(spec.sizes, spec.dtype) if mask is None or mask[0] is True else 0.0


def _of_softmax(call: Call) -> float:
    spec = first_tensor(call)
    if call.base.endswith("_backward_data"):
        return size_bytes(spec.sizes, call.dtype(3, "input_dtype", spec.dtype))
    wide = call.is_set(2, "half_to_float") is True
    return size_bytes(spec.sizes, "float32" if wide else spec.dtype)


def _of_reduction(call: Call) -> float:
    """A running sum is as long as its input; others are taken to leave next to nothing."""
    spec = first_tensor(call)
    return size_bytes(spec.sizes, spec.dtype) if call.base in ("cumsum", "cumprod", "logcumsumexp") else 0.0


def _of_loss(call: Call) -> float:
    """Forward it may be one number; backward it is the input's gradient."""
    spec = call.get(1, "self")
    if call.base.endswith("_backward") and isinstance(spec, TensorSpec):
        return size_bytes(sound(spec).sizes, spec.dtype)
    return 0.0


def _of_pooling(call: Call) -> float:
    """Backward: the input, or the sizes that are given for it."""
    if not call.base.endswith("_backward"):
        return 0.0
    spec, sizes = call.get(1, "self"), call.get(2, "input_size")
    if isinstance(spec, TensorSpec):
        return size_bytes(sound(spec).sizes, spec.dtype)
    if isinstance(sizes, tuple) and all(type(size) is int and 0 <= size < 1 << 48 for size in sizes):
        return size_bytes((size for size in sizes if type(size) is int), first_tensor(call).dtype)
    raise Unsaid("the input's sizes")


def _of_lists(call: Call) -> float:
    """Of ops over lists of tensors: in place the first list, and the state of an optimizer beside it."""
    if call.base in ("_foreach_norm", "_foreach_max", "_foreach_powsum"):
        return 0.0
    places = next((places for name, places in _STATE.items() if call.base.startswith(name)), (0,))
    lists = [sound(spec) for place in places for spec in tensors_in(call.get(place, ""))]
    if not lists:
        raise Unsaid("a list of tensors")
    return sum(distinct_bytes(spec) if call.in_place else size_bytes(spec.sizes, spec.dtype) for spec in lists)


#: Lists that a fused step of an optimizer writes: parameters, then its averages. Gradients it only reads.
_STATE = {"_fused_adam": (0, 2, 3, 4), "_fused_sgd": (0, 2), "_fused_adagrad": (0, 2)}


def _copied(call: Call) -> float:
    if call.in_place:
        return distinct_bytes(first_tensor(call))
    if call.base not in WRITTEN:
        raise Unsaid("the size of the result")
    return WRITTEN[call.base](call)


def _unknown(call: Call) -> float:
    raise Unsaid("the size of the result")


_WRITTEN: Mapping[OpClass, Callable[[Call], float]] = {
    "elementwise": _like_operands,
    "normalization": _like_input,
    "softmax": _of_softmax,
    "reduction": _of_reduction,
    "copy": _copied,
    "random": _copied,
    "loss": _of_loss,
    "pooling": _of_pooling,
    "optimizer": _of_lists,
    "sort": _unknown,
    "linalg": _unknown,
    "recurrent": _unknown,
}


def _backward(call: Call, op_class: OpClass) -> tuple[float, float]:
    """(read, written) by the backward of a composite that was recorded with it: the gradient that arrived, for norms
    the input again, and the gradient of the input."""
    spec = first_tensor(call)
    arrived = sum(distinct_bytes(sound(grad)) for grad in call.case.grads or () if grad is not None)
    again = distinct_bytes(spec) if op_class == "normalization" else 0.0
    return arrived + again, size_bytes(spec.sizes, spec.dtype)
