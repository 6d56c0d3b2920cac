"""Tensor values made from recorded statistics: the same seed, key and position give the same bits everywhere."""

from __future__ import annotations

import torch

from audit.replay.stream import PERIOD, Stream, repeated
from audit.schema import Values

_INT64 = torch.iinfo(torch.int64)


def synthesise(n: int, dtype: torch.dtype, values: Values, stream: Stream) -> torch.Tensor:
    """``n`` elements of ``dtype``, 1-D, that fit the statistics.

    Integers without a recorded range become zeros: a random integer may be used as an index, and an index out of range
    can hang an AMD card. Floats without statistics are standard normal.
    """
    if dtype == torch.bool:
        share = 0.5 if values.mean is None else values.mean
        return repeated(stream.uniform(min(n, PERIOD)) < share, n)
    if dtype.is_complex:
        part = torch.float64 if dtype == torch.complex128 else torch.float32
        parts = [_floats(n, part, values, stream) for _ in range(2)]
        return torch.complex(*parts).to(dtype)
    if dtype.is_floating_point:
        return _floats(n, dtype, values, stream)
    if values.minimum is None or values.maximum is None:
        return torch.zeros(n, dtype=dtype)
    return integers(n, int(values.minimum), int(values.maximum), values, stream, dtype)


# --- integers --------------------------------------------------------------------------------------------------


def integers(
    n: int, low: int, high: int, values: Values, stream: Stream, dtype: torch.dtype = torch.int64
) -> torch.Tensor:
    """``n`` integers from ``low`` to ``high`` with the recorded number of distinct values, repetitions and order.

    Unsigned 64-bit values beyond the int64 range are cut to it. Order is that of the whole; ``low`` <= ``high``.
    """
    low, high = max(low, _INT64.min), min(high, _INT64.max)
    n_drawn = min(n, values.n_structured or n, PERIOD)
    if values.n_distinct is None:
        drawn = stream.integers(n_drawn, low, high)
    else:
        drawn = _with_repetitions(n_drawn, low, high, values.n_distinct, values.max_multiplicity or 1, stream)
    if not values.order:
        return repeated(drawn.to(dtype), n)
    drawn = drawn.sort(descending=values.order == "descending").values.to(dtype)
    return drawn if n == n_drawn else drawn[torch.arange(n) * n_drawn // n]


def _with_repetitions(n: int, low: int, high: int, n_distinct: int, most: int, stream: Stream) -> torch.Tensor:
    """In random order: one value ``most`` times, the others about equally often."""
    n_distinct = max(1, min(n_distinct, n, high - low + 1))
    chosen = stream.distinct(n_distinct, low, high)
    favourite = int(stream.integers(1, 0, n_distinct - 1))
    chosen[[0, favourite]] = chosen[[favourite, 0]]
    n_more = n - n_distinct
    n_favourite = n_more if n_distinct == 1 else min(max(most - 1, 0), n_more)
    others = 1 + torch.arange(n_more - n_favourite) % max(n_distinct - 1, 1)
    which = torch.cat((torch.arange(n_distinct), torch.zeros(n_favourite, dtype=torch.int64), others))
    return chosen[which[stream.permutation(n)]]


# --- floats ----------------------------------------------------------------------------------------------------


def _floats(n: int, dtype: torch.dtype, values: Values, stream: Stream) -> torch.Tensor:
    n_drawn = min(n, PERIOD)
    result = stream.normal(n_drawn)
    if values.std is not None:
        result.mul_(values.std).add_(values.mean or 0.0)
    if values.minimum is not None and values.maximum is not None:
        result = _within(result, values.minimum, values.maximum)
    if values.subnormal_fraction:
        small = stream.uniform(n_drawn).mul_(torch.finfo(dtype).tiny)
        result = torch.where(stream.uniform(n_drawn) < values.subnormal_fraction, small, result)
    if values.zero_fraction:
        result.masked_fill_(stream.uniform(n_drawn) < values.zero_fraction, 0.0)
    work = torch.float32 if dtype.itemsize == 1 else dtype  # elements of fp8 tensors cannot be assigned
    return _plant_special(repeated(result.to(work), n), values, stream).to(dtype)


def _within(x: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """What is outside is mirrored in, so that a range that ends at 0 is not half zeros."""
    x = torch.where(x < low, 2 * low - x, x)
    return torch.where(x > high, 2 * high - x, x).clamp_(low, high)


def _plant_special(result: torch.Tensor, values: Values, stream: Stream) -> torch.Tensor:
    """Puts the extremes, NaN and Inf at random places, since a single one decides overflow and propagation."""
    special: list[tuple[float, int]] = [(float("nan"), values.n_nan), (float("inf"), values.n_posinf)]
    special.append((float("-inf"), values.n_neginf))
    special += [(float(extreme), 1) for extreme in (values.minimum, values.maximum) if extreme is not None]
    n_special = sum(count for _, count in special)
    if n_special == 0 or result.numel() < 2:
        return result
    places = _places(result.numel(), n_special, stream)
    start = 0
    for value, count in special:
        result[places[start : start + count]] = value
        start += count
    return result


def _places(n: int, n_places: int, stream: Stream) -> torch.Tensor:
    """Random places; distinct but where they are few among very many, when a permutation of all would cost seconds."""
    if n > PERIOD and n_places < n // 1000:
        return stream.integers(n_places, 0, n - 1)
    return stream.permutation(n)[:n_places]
