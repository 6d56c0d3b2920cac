"""The distance in ULP is a metric on the numbers of each dtype."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from audit.replay.ulp import FAR, has_ulp, histogram, spacing_above_one, ulp_distance

INF, NAN = math.inf, math.nan
#: With the integer type of the same size.
SIGNED = {
    torch.float64: torch.int64,
    torch.float32: torch.int32,
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float8_e4m3fn: torch.int8,
    torch.float8_e5m2: torch.int8,
    torch.float8_e4m3fnuz: torch.int8,
    torch.float8_e5m2fnuz: torch.int8,
}
DTYPES = (*SIGNED, torch.float8_e8m0fnu)
patterns = st.integers(0, 2**64 - 1)
dtypes = st.sampled_from(DTYPES)


def number(bits: int, dtype: torch.dtype) -> torch.Tensor:
    """The one whose bits are the low ones of ``bits``."""
    content = (bits % (1 << 8 * dtype.itemsize)).to_bytes(dtype.itemsize, "little")
    return torch.frombuffer(bytearray(content), dtype=torch.uint8).view(dtype)


def value(tensor: torch.Tensor) -> float:
    return float(tensor.to(torch.float64))


def distance(a: torch.Tensor, b: torch.Tensor) -> int:
    return int(ulp_distance(a, b))


def between(a: float, b: float, dtype: torch.dtype = torch.float32) -> int:
    return distance(torch.tensor([a]).to(dtype), torch.tensor([b]).to(dtype))


@given(dtypes, patterns, patterns)
def test_it_is_symmetric_and_zero_for_equal_numbers_only(dtype, left, right):
    a, b = number(left, dtype), number(right, dtype)
    assert distance(a, b) == distance(b, a) >= 0
    both_nan = math.isnan(value(a)) and math.isnan(value(b))
    assert (distance(a, b) == 0) == (value(a) == value(b) or both_nan)


@given(dtypes, patterns, patterns, patterns)
def test_it_grows_with_the_distance_and_adds_up_between(dtype, first, second, third):
    low, middle, high = sorted((number(bits, dtype) for bits in (first, second, third)), key=value)
    if any(math.isnan(value(a)) for a in (low, middle, high)):
        return
    assert distance(low, high) == min(FAR, distance(low, middle) + distance(middle, high))


@given(dtypes, patterns, patterns)
def test_a_nan_of_any_payload_is_like_any_other_and_far_from_every_number(dtype, left, right):
    a, b = number(left, dtype), number(right, dtype)
    if math.isnan(value(a)):
        assert distance(a, b) == (0 if math.isnan(value(b)) else FAR)


@pytest.mark.parametrize("dtype", [d for d in SIGNED if d.itemsize <= 2])
def test_all_numbers_of_a_narrow_dtype_are_one_step_apart(dtype):
    bits = torch.arange(1 << 8 * dtype.itemsize).to(SIGNED[dtype]).view(dtype)
    ordered = sorted({float(x) for x in bits.to(torch.float64) if not torch.isnan(x)})
    numbers = torch.tensor(ordered, dtype=torch.float32).to(dtype)
    assert set(ulp_distance(numbers[1:], numbers[:-1]).tolist()) == {1}


def test_the_smallest_numbers_of_both_signs_are_two_steps_apart():
    least = 2.0**-149
    assert (between(0.0, least), between(-0.0, least), between(-least, least), between(0.0, -0.0)) == (1, 1, 2, 0)


def test_one_step_below_a_power_of_two_is_as_near_as_one_above():
    assert between(1.0, 1 + 2.0**-23) == between(1.0, 1 - 2.0**-24) == 1


def test_infinity_is_one_step_beyond_the_largest_number():
    largest = torch.finfo(torch.float16).max
    assert (between(INF, largest, torch.float16), between(-INF, INF, torch.float16)) == (1, 2 * 0x7C00)


def test_doubles_too_far_apart_for_int64_are_far():
    far = torch.tensor([-INF, -1e300], dtype=torch.float64), torch.tensor([INF, 1e300], dtype=torch.float64)
    assert ulp_distance(*far).tolist() == [FAR, FAR]


def test_powers_of_two_have_no_sign_and_no_zero():
    assert between(0.25, 4.0, torch.float8_e8m0fnu) == 4


def test_complex_numbers_are_measured_by_component():
    a, b = torch.tensor([1 + 2j]), torch.tensor([complex(1 + 2.0**-23, -2)])
    assert ulp_distance(a, b).tolist() == [[1, 2 * 0x40000000]]


def test_packed_and_whole_numbers_have_none():
    assert [has_ulp(d) for d in (torch.float8_e8m0fnu, torch.complex64, torch.int32, torch.bool)] == [
        True, True, False, False,
    ]  # fmt: skip


def test_a_histogram_counts_by_powers_of_two():
    counts = histogram(torch.tensor([0, 0, 1, 2, 3, 4, 7, 8, FAR]))
    assert (counts[:6], sum(counts), counts[-1]) == ([2, 1, 2, 2, 1, 0], 9, 1)


def test_the_spacing_above_one_follows_from_the_bits_of_the_mantissa() -> None:
    """torch.finfo says 1/8 of float8_e5m2fnuz (2.13), whose mantissa has two bits."""
    bits = {torch.float8_e5m2fnuz: 2, torch.float8_e5m2: 2, torch.float8_e4m3fn: 3, torch.float8_e4m3fnuz: 3}
    bits |= {torch.float8_e8m0fnu: 0, torch.bfloat16: 7, torch.float16: 10, torch.float32: 23, torch.complex128: 52}
    assert {dtype: spacing_above_one(dtype) for dtype in bits} == {dtype: 2.0**-n for dtype, n in bits.items()}
