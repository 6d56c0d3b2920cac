"""Operations of attention: two products forward, five backward, as torch's flop_counter counts them.

Unlike there, a causal mask leaves half of them (fewer where there are more keys than queries), and so does a mask that
nobody tells of: the count has to be the least. A window, or lengths that lie in a tensor, leave nothing to count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

from audit.rules.work.call import Amount, Call, Unsaid, read_once, size_bytes, sound, tensors_in
from audit.schema import TensorSpec


@dataclass(frozen=True)
class _Places:
    """Where an op has its arguments. ``first`` is the query's; key and value follow. ``heads_last``: sequence before
    heads, in the packages' own ops."""

    first: int
    causal: int
    heads_last: bool = False
    lengths: int | None = None
    also_read: tuple[int, ...] = ()
    mask: int | None = None


@dataclass(frozen=True)
class _Sizes:
    """``pairs``: of a query with a key, over batch and heads; ``width`` of query and key, ``value_width`` of value;
    ``keys_share``: of the keys, how many any query meets."""

    pairs: float
    width: int
    value_width: int
    keys_share: float


def _forward(places: _Places) -> Callable[[Call], Amount]:
    def count(call: Call) -> Amount:
        query, key, value = _operands(call, places)
        found = _sizes(call, places, query, key, value)
        flops = 2.0 * found.pairs * (found.width + found.value_width)
        written = size_bytes((*query.sizes[:-1], value.sizes[-1]), query.dtype)
        read = read_once([query, *_more(call, places)]) + found.keys_share * read_once([key, value])
        if call.case.grads is None:
            return Amount(flops, query.dtype, read, written)
        # Its backward with it: the gradient is read, the operands again, and a gradient of each is written.
        wanted = read_once(spec for spec in (query, key, value) if spec.requires_grad) or read_once([query])
        again = (
            read_once([query])
            + found.keys_share * read_once([key, value])
            + sum(read_once([sound(g)]) for g in call.case.grads if g is not None)
        )
        backward = 2.0 * found.pairs * (3 * found.width + 2 * found.value_width)
        return Amount(flops + backward, query.dtype, read + again, written + wanted)

    return count


def _backward(places: _Places) -> Callable[[Call], Amount]:
    """The scores again, then a gradient through each of the two products."""

    def count(call: Call) -> Amount:
        query, key, value = _operands(call, places)
        gradient = call.tensor(0, "grad_out")
        found = _sizes(call, places, query, key, value)
        read = read_once([gradient, query, *_more(call, places)]) + found.keys_share * read_once([key, value])
        flops = 2.0 * found.pairs * (3 * found.width + 2 * found.value_width)
        return Amount(flops, query.dtype, read, sum(size_bytes(s.sizes, s.dtype) for s in (query, key, value)))

    return count


def _operands(call: Call, places: _Places) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    names = zip(range(places.first, places.first + 3), ("query", "key", "value"), strict=True)
    query, key, value = (call.tensor(place, name) for place, name in names)
    n_dims = {len(spec.sizes) for spec in (query, key, value)}
    if len(n_dims) != 1 or n_dims == {1} or query.sizes[-1] != key.sizes[-1]:
        raise Unsaid("query, key and value of one kind")
    return query, key, value


def _more(call: Call, places: _Places) -> list[TensorSpec]:
    """Mask, output and such: but for a mask, they are as small as the output."""
    return [sound(spec) for place in places.also_read for spec in tensors_in(call.get(place, ""))]


def _sizes(call: Call, places: _Places, query: TensorSpec, key: TensorSpec, value: TensorSpec) -> _Sizes:
    lengths = tensors_in(call.get(places.lengths, "")) if places.lengths is not None else []
    axis = -3 if places.heads_last else -2
    if -axis > len(query.sizes):
        raise Unsaid("a dimension of heads")
    n_queries, n_keys = query.sizes[axis], key.sizes[axis]
    others = prod(query.sizes[:-1]) // n_queries if n_queries else 0
    pairs, keys_share = float(others * n_queries * n_keys), 1.0
    if lengths:  # sequences one after another: were they of one length, there would be fewest pairs
        pairs /= max(sound(lengths[0]).sizes[0] - 1, 1) if lengths[0].sizes else 1
    elif _is_narrowed(call):
        pairs = keys_share = 0.0
    if _may_be_causal(call, places):
        pairs *= min(0.5, 0.5 * (n_queries + 1) / n_keys) if n_keys else 0.0
        keys_share *= min(1.0, n_queries / n_keys) if n_keys else 1.0
    return _Sizes(pairs, query.sizes[-1], value.sizes[-1], keys_share)


def _may_be_causal(call: Call, places: _Places) -> bool:
    """Whether it is, or nobody says. The packages' memory-efficient op has a kind of mask, of which 0 is none."""
    if call.base.startswith("_efficient_attention"):
        return call.get(places.causal, "custom_mask_type", 0) != 0
    return call.is_set(places.causal, "is_causal") is not False


def _is_narrowed(call: Call) -> bool:
    """Whether a window, or lengths in a tensor, leave pairs out that nobody can count."""
    named = dict(call.case.kwargs)
    windows = (named.get(name) for name in ("window_size_left", "window_size_right", "window_size"))
    tensors = (named.get(name) for name in ("seqused_k", "seqlen_k", "block_table"))
    return any(type(window) is int and window >= 0 for window in windows) or any(item is not None for item in tensors)


_FLASH, _EFFICIENT = "_scaled_dot_product_flash_attention", "_scaled_dot_product_efficient_attention"
_CUDNN, _OVERRIDEABLE = "_scaled_dot_product_cudnn_attention", "_scaled_dot_product_fused_attention_overrideable"

ATTENTION: Mapping[str, Callable[[Call], Amount]] = {
    "scaled_dot_product_attention": _forward(_Places(0, 5, also_read=(3,))),
    "_scaled_dot_product_attention_math": _forward(_Places(0, 5, also_read=(3,))),
    _FLASH: _forward(_Places(0, 4)),
    f"{_FLASH}_for_cpu": _forward(_Places(0, 4)),
    _EFFICIENT: _forward(_Places(0, 6, also_read=(3,))),
    _CUDNN: _forward(_Places(0, 6, also_read=(3,))),
    _OVERRIDEABLE: _forward(_Places(0, 5, also_read=(3,))),
    f"{_FLASH}_backward": _backward(_Places(1, 11, also_read=(4, 5))),
    f"{_FLASH}_for_cpu_backward": _backward(_Places(1, 7, also_read=(4, 5))),
    f"{_EFFICIENT}_backward": _backward(_Places(1, 11, also_read=(4, 5, 6))),
    f"{_CUDNN}_backward": _backward(_Places(1, 14, also_read=(4, 5, 8))),
    f"{_OVERRIDEABLE}_backward": _backward(_Places(1, 13, also_read=(4, 6, 7))),
    "_flash_attention_forward": _forward(_Places(0, 8, heads_last=True, lengths=3)),
    "_efficient_attention_forward": _forward(_Places(0, 9, heads_last=True, lengths=4, also_read=(3,))),
    "_flash_attention_backward": _backward(_Places(1, 11, heads_last=True, lengths=6, also_read=(4, 5))),
    "_efficient_attention_backward": _backward(_Places(1, 14, heads_last=True, lengths=6, also_read=(4, 5, 10))),
}
