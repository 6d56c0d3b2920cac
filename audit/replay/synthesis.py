"""Tensor values made from recorded statistics: the same seed, key and position give the same values everywhere."""

from __future__ import annotations

import hashlib

import torch

from audit.schema import Values

_INT64_MAX = (1 << 63) - 1
#: Random numbers are drawn for at most this many elements and then repeat: the generator is serial, and a weight of
#: 130 million elements would take it seconds. A prime, so that no two rows of a power-of-two size are equal.
PERIOD = 4_194_301


def generator(seed: int, key: str, position: int) -> torch.Generator:
    """A CPU generator of its own for one operand of one case."""
    digest = hashlib.sha256(f"{seed}/{key}/{position}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def synthesise(n: int, dtype: torch.dtype, values: Values, source: torch.Generator) -> torch.Tensor:
    """``n`` elements of ``dtype``, 1-D, that fit the statistics.

    Integers without a recorded range become zeros: a random integer may be used as an index, and an index out of range
    can hang an AMD card. Floats without statistics are standard normal.
    """
    if dtype == torch.bool:
        share = 0.5 if values.mean is None else values.mean
        return torch.rand(n, generator=source) < share
    if dtype.is_complex:
        part = torch.float64 if dtype == torch.complex128 else torch.float32
        parts = [_floats(n, part, values, source) for _ in range(2)]
        return torch.complex(*parts).to(dtype)
    if dtype.is_floating_point:
        return _floats(n, dtype, values, source)
    return _integers(n, values, source).to(dtype)


def _integers(n: int, values: Values, source: torch.Generator) -> torch.Tensor:
    if values.minimum is None or values.maximum is None:
        return torch.zeros(n, dtype=torch.int64)
    low, high = int(values.minimum), min(int(values.maximum), _INT64_MAX - 1)
    return torch.randint(min(low, high), high + 1, (n,), generator=source)


def _floats(n: int, dtype: torch.dtype, values: Values, source: torch.Generator) -> torch.Tensor:
    work = torch.float64 if dtype == torch.float64 else torch.float32
    result = _normal(n, work, source)
    if values.std is not None:
        result.mul_(values.std).add_(values.mean or 0.0)
    if values.minimum is not None and values.maximum is not None:
        result.clamp_(values.minimum, values.maximum)
    if values.subnormal_fraction:
        tiny = torch.finfo(dtype).tiny
        small = _uniform(n, torch.float64, source).mul_(tiny)
        chosen = _uniform(n, torch.float32, source) < values.subnormal_fraction
        result = torch.where(chosen, small.to(work), result)
    if values.zero_fraction:
        result.masked_fill_(_uniform(n, torch.float32, source) < values.zero_fraction, 0.0)
    return _plant_special(result, values, source).to(dtype)


def _normal(n: int, dtype: torch.dtype, source: torch.Generator) -> torch.Tensor:
    return _repeated(torch.randn(min(n, PERIOD), generator=source, dtype=dtype), n)


def _uniform(n: int, dtype: torch.dtype, source: torch.Generator) -> torch.Tensor:
    return _repeated(torch.rand(min(n, PERIOD), generator=source, dtype=dtype), n)


def _repeated(drawn: torch.Tensor, n: int) -> torch.Tensor:
    """``n`` elements that go round ``drawn``."""
    if n <= drawn.numel():
        return drawn[:n]
    result = torch.empty(n, dtype=drawn.dtype)
    for start in range(0, n, drawn.numel()):
        part = result[start : start + drawn.numel()]
        part.copy_(drawn[: part.numel()])
    return result


def _plant_special(result: torch.Tensor, values: Values, source: torch.Generator) -> torch.Tensor:
    """Puts the extremes, NaN and Inf at random places, since a single one decides overflow and propagation."""
    special: list[tuple[float, int]] = [(float("nan"), values.n_nan), (float("inf"), values.n_posinf)]
    special.append((float("-inf"), values.n_neginf))
    special += [(float(extreme), 1) for extreme in (values.minimum, values.maximum) if extreme is not None]
    n_special = sum(count for _, count in special)
    if n_special == 0 or result.numel() < 2:
        return result
    places = _places(result.numel(), n_special, source)
    start = 0
    for value, count in special:
        result[places[start : start + count]] = value
        start += count
    return result


def _places(n: int, n_places: int, source: torch.Generator) -> torch.Tensor:
    """Random places; distinct but where they are few among very many, when a permutation of all would cost seconds."""
    if n > PERIOD and n_places < n // 1000:
        return torch.randint(n, (n_places,), generator=source)
    return torch.randperm(n, generator=source)[:n_places]
