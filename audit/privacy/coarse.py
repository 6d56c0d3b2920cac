"""Statistics rounded until they say how large values are and no longer which.

A number of two significant bits (1, 1.5, 2, 3, 4, 6, ...) keeps sign and scale within a factor of 1.5, and fits any of
some hundred values that a weight could have had.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Container
from typing import TypeVar

from audit.schema import Values

Number = TypeVar("Number", int, float)

#: Bits of a bound, a mean, a deviation, a count; and of a share, where a loss of a quarter would change a mask.
BITS = 2
SHARE_BITS = 4
#: Rounding away from zero must not leave the dtype.
_LARGEST = {
    "float16": 65504.0,
    "bfloat16": 3.3895313892515355e38,
    "float32": 3.4028234663852886e38,
    "complex64": 3.4028234663852886e38,
    "float8_e4m3fn": 448.0,
    "float8_e5m2": 57344.0,
}


def coarse_values(values: Values, dtype: str, visible: Container[int]) -> Values:
    """What may be said of an operand's values. ``visible`` are integers that stand in the case anyway, as a size does.

    A bound that is a visible number, or one less (the last index), is kept, since indices must fit what they index.
    """
    low, high = _bounds(values.minimum, values.maximum, dtype, visible)
    return Values(
        stored=False,
        n_sampled=values.n_sampled,
        minimum=low,
        maximum=high,
        mean=_mean(values.mean, low, high, dtype),
        std=None if values.std is None else towards_zero(values.std, BITS),
        n_nan=towards_zero(values.n_nan, BITS),
        n_posinf=towards_zero(values.n_posinf, BITS),
        n_neginf=towards_zero(values.n_neginf, BITS),
        zero_fraction=towards_zero(values.zero_fraction, SHARE_BITS),
        subnormal_fraction=towards_zero(values.subnormal_fraction, SHARE_BITS),
        # Structure says how values lie to each other, and not which they are.
        n_structured=values.n_structured,
        n_distinct=values.n_distinct,
        max_multiplicity=values.max_multiplicity,
        order=values.order,
        pattern=values.pattern,
    )


def towards_zero(number: Number, bits: int) -> Number:
    """The number of so many significant bits next to ``number`` on the side of zero."""
    if number == 0 or not math.isfinite(number):
        return number
    if isinstance(number, int):
        drop = max(abs(number).bit_length() - bits, 0)
        return (abs(number) >> drop << drop) * (1 if number > 0 else -1)
    mantissa, exponent = math.frexp(abs(number))
    return math.copysign(math.ldexp(math.floor(mantissa * 2**bits) / 2**bits, exponent), number)


def _away_from_zero(number: float, bits: int) -> float:
    mantissa, exponent = math.frexp(abs(number))
    try:
        return math.copysign(math.ldexp(math.ceil(mantissa * 2**bits) / 2**bits, exponent), number)
    except OverflowError:  # beyond the last power of two of a double
        return math.copysign(math.inf, number)


def _bounds(
    low: float | int | None, high: float | int | None, dtype: str, visible: Container[int]
) -> tuple[float | int | None, float | int | None]:
    """A range within the recorded one, for what is valid in that (indices, a logarithm's argument) is valid in this.

    Where a float range is too narrow to hold a coarse number, it grows to the next ones around it.
    """
    if low is None or high is None:
        return (None if low is None else towards_zero(low, BITS)), (None if high is None else towards_zero(high, BITS))
    if _is_integral(dtype):
        return _integer_bounds(int(low), int(high), visible)
    lowest = towards_zero(low, BITS) if low <= 0 else _away_from_zero(low, BITS)
    highest = towards_zero(high, BITS) if high >= 0 else _away_from_zero(high, BITS)
    if lowest <= highest:
        return float(lowest), float(highest)
    largest = _LARGEST.get(dtype, sys.float_info.max)
    near = float(towards_zero(low if low > 0 else high, BITS))
    if low > 0:
        return near, max(near, min(_away_from_zero(high, BITS), largest))
    return min(near, max(_away_from_zero(low, BITS), -largest)), near


def _is_integral(dtype: str) -> bool:
    return dtype == "bool" or dtype.startswith(("int", "uint"))


def _integer_bounds(low: int, high: int, visible: Container[int]) -> tuple[int, int]:
    def kept(number: int) -> bool:
        return number in visible or number + 1 in visible

    highest = high if kept(high) else towards_zero(high, BITS) if high >= 0 else -_ceil(-high)
    lowest = low if kept(low) else towards_zero(low, BITS) if low <= 0 else _ceil(low)
    if lowest <= highest:
        return lowest, highest
    # No coarse number lies within: a range about as wide below it, where an index is still one.
    lowest = towards_zero(low, BITS) if low > 0 else -_ceil(-low)
    return lowest, lowest + towards_zero(high - low, BITS)


def _ceil(number: int) -> int:
    """Away from zero, for a positive number."""
    coarse = towards_zero(number, BITS)
    return coarse if coarse == number else coarse + (1 << (number.bit_length() - BITS))


def _mean(mean: float | None, low: float | int | None, high: float | int | None, dtype: str) -> float | None:
    if mean is None:
        return None
    rounded = towards_zero(mean, SHARE_BITS if dtype == "bool" else BITS)
    if low is not None and high is not None and math.isfinite(rounded):
        rounded = min(max(rounded, float(low)), float(high))
    return rounded
