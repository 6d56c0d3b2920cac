"""The least time that a call can take on a device, by arithmetic and by bytes that must move.

What is above is the most that can be gained, and no judgement. A call whose operands fit the last level of cache may
never touch memory, so only bytes beyond it count. Ops that are not listed here have no floor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from audit.codec import item_bytes, reach
from audit.rules.rates import product_of, rates_of
from audit.schema import Arg, Case, Ceilings, DeviceInfo, TensorSpec

Bound: TypeAlias = Literal["compute", "memory"]
#: Floating-point operations, the tensors that must be read, and the sizes of what must be written in the dtype of the
#: first of them. None where the arguments do not say.
Work: TypeAlias = "tuple[float, list[TensorSpec], tuple[int, ...]] | None"


#: A case that has its backward with it (attention, norms) does more: of arithmetic, five products beside attention's
#: two; of bytes, operand and gradient are read and a gradient is written, beside one read and one write.
_WITH_BACKWARD = (3.5, 2.5)


@dataclass(frozen=True)
class Floor:
    """``us`` a call, and what holds it there."""

    us: float
    bound: Bound


def floor_of(case: Case, device: DeviceInfo, ceilings: Ceilings | None = None) -> Floor | None:
    """None where the op, its arguments or the device's rates are not known."""
    gpu = product_of(device)
    try:
        work = _work(case)
    except OverflowError:  # a stranger's sizes
        return None
    if work is None:
        return None
    flops, read, written = work
    more_flops, more_bytes = _WITH_BACKWARD if case.grads is not None else (1.0, 1.0)
    bandwidth_gbs, tflops = rates_of(device, ceilings, read[-1].dtype)
    if not bandwidth_gbs:
        return None
    n_bytes = more_bytes * (sum(_distinct_bytes(spec) for spec in read) + prod(written) * item_bytes(read[0].dtype))
    cache_mib = gpu.cache_mib if gpu is not None else None
    beyond_cache = max(0.0, n_bytes - (cache_mib or 0.0) * (1 << 20))
    memory_us = beyond_cache / (bandwidth_gbs * 1e3)
    compute_us = more_flops * flops / (tflops * 1e6) if tflops else 0.0
    floor = max(memory_us, compute_us)
    return Floor(floor, "compute" if compute_us >= memory_us else "memory") if floor > 0 else None


def _work(case: Case) -> Work:
    base = case.op.partition(".")[0]
    if base in _COUNTED:
        return _COUNTED[base](case.args)
    return _elementwise(case.args, _READ[base]) if base in _READ else None


def _distinct_bytes(spec: TensorSpec) -> int:
    """Of elements that lie in memory: an expanded tensor has fewer than its sizes say."""
    return min(prod(spec.sizes), reach(spec.sizes, spec.strides)) * item_bytes(spec.dtype)


# --- arithmetic ----------------------------------------------------------------------------------------------------


def _tensors(args: tuple[Arg, ...], n: int) -> list[TensorSpec] | None:
    found = [arg for arg in args if isinstance(arg, TensorSpec)][:n]
    return found if len(found) == n and all(len(spec.sizes) for spec in found) else None


def _product_of(args: tuple[Arg, ...]) -> Work:
    """Of two matrices, or of two batches of them."""
    pair = _tensors(args, 2)
    if pair is None or any(len(spec.sizes) < 2 for spec in pair):
        return None
    (*batch, rows, inner), columns = pair[0].sizes, pair[1].sizes[-1]
    return 2.0 * prod(batch) * rows * inner * columns, pair, (*batch, rows, columns)


def _product_with_addend(args: tuple[Arg, ...]) -> Work:
    return _product_of(args[1:])


def _convolution(args: tuple[Arg, ...]) -> Work:
    """``input, weight, bias, stride, padding, dilation, transposed, ...``."""
    pair = _tensors(args, 2)
    if pair is None or len(args) < 9 or args[6] is not False:
        return None
    sizes, kernel = pair[0].sizes, pair[1].sizes
    stride, padding, dilation = (_per_dimension(args[place], len(kernel) - 2) for place in (3, 4, 5))
    if stride is None or padding is None or dilation is None or len(sizes) != len(kernel) or 0 in stride:
        return None
    window = zip(sizes[2:], kernel[2:], stride, padding, dilation, strict=True)
    output = [(size + 2 * pad - dil * (width - 1) - 1) // step + 1 for size, width, step, pad, dil in window]
    if any(size < 0 for size in output):
        return None
    n_outputs = sizes[0] * kernel[0] * prod(output)
    return 2.0 * n_outputs * prod(kernel[1:]), pair, (sizes[0], kernel[0], *output)


def _convolution_backward(args: tuple[Arg, ...]) -> Work:
    """``gradient, input, weight, bias sizes, stride, padding, dilation, transposed, ...``: one product for each
    gradient that is asked for, of input and of weight."""
    triple = _tensors(args, 3)
    mask = args[10] if len(args) > 10 else None
    if triple is None or len(args) < 8 or args[7] is not False:
        return None
    gradient, given, weight = triple
    wanted = mask[:2] if isinstance(mask, tuple) and len(mask) == 3 else (False, True)
    one = 2.0 * prod(gradient.sizes) * prod(weight.sizes[1:])
    read = [gradient, *([given] if wanted[1] is True else []), *([weight] if wanted[0] is True else [])]
    return one * sum(flag is True for flag in wanted), read, given.sizes if wanted[0] is True else weight.sizes


def _per_dimension(arg: Arg, n: int) -> tuple[int, ...] | None:
    if not isinstance(arg, tuple) or not arg or len(arg) not in (1, n):
        return None
    numbers = tuple(item for item in arg if isinstance(item, int) and item >= 0)
    return numbers * (n // len(numbers)) if len(numbers) == len(arg) else None


def _attention(args: tuple[Arg, ...]) -> Work:
    """Query, key, value; a causal mask halves it, and so does one that nobody tells of."""
    triple = _tensors(args, 3)
    if triple is None or any(len(spec.sizes) < 3 for spec in triple):
        return None
    query, key, value = (spec.sizes for spec in triple)
    is_full = len(args) > 5 and args[5] is False
    flops = 2.0 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])
    return flops * (1.0 if is_full else 0.5), triple, (*query[:-1], value[-1])


def _elementwise(args: tuple[Arg, ...], read: slice) -> Work:
    """No arithmetic to speak of. What is written has the sizes of the largest operand, the least that it can have."""
    tensors = [arg for arg in args if isinstance(arg, TensorSpec)][read]
    return (0.0, tensors, max((spec.sizes for spec in tensors), key=prod)) if tensors else None


_COUNTED: Mapping[str, Callable[[tuple[Arg, ...]], Work]] = {
    "aten::mm": _product_of,
    "aten::bmm": _product_of,
    "aten::addmm": _product_with_addend,
    "aten::baddbmm": _product_with_addend,
    "aten::convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::scaled_dot_product_attention": _attention,
    "aten::_scaled_dot_product_flash_attention": _attention,
    "aten::_scaled_dot_product_efficient_attention": _attention,
}
_ONE, _TWO, _SECOND = slice(0, 1), slice(0, 2), slice(1, 2)
#: Which tensor arguments each of these ops reads whole; each writes a result of the largest one's size.
_READ: Mapping[str, slice] = {
    **dict.fromkeys(
        (
            f"aten::{name}"
            for name in """
            neg relu relu_ gelu silu silu_ sigmoid tanh exp log sqrt rsqrt pow cos sin abs clone _softmax _log_softmax
            layer_norm group_norm rms_norm batch_norm
            """.split()
        ),
        _ONE,
    ),
    **dict.fromkeys(
        (
            f"aten::{name}"
            for name in """
            add add_ sub sub_ mul mul_ div div_ threshold_backward gelu_backward silu_backward sigmoid_backward
            tanh_backward _softmax_backward_data native_batch_norm_backward
            """.split()
        ),
        _TWO,
    ),
    "aten::copy_": _SECOND,
}
