"""Rounded statistics keep sign, scale and validity, and forget which number it was."""

from __future__ import annotations

import math
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from audit.privacy.coarse import coarse_values, towards_zero
from audit.schema import Values

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize(
    ("number", "rounded"),
    [(0.0, 0.0), (1.0, 1.0), (1.4, 1.0), (1.6, 1.5), (-2713.65, -2048.0), (3.9, 3.0), (1e-5, 7.62939453125e-06)],
)
def test_floats_are_rounded_towards_zero_to_two_bits(number: float, rounded: float) -> None:
    assert towards_zero(number, 2) == rounded


@pytest.mark.parametrize(("number", "rounded"), [(0, 0), (3, 3), (5, 4), (7, 6), (-7, -6), (31337, 24576)])
def test_integers_are_rounded_towards_zero_to_two_bits(number: int, rounded: int) -> None:
    assert towards_zero(number, 2) == rounded


@given(FINITE, st.integers(1, 4))
def test_a_rounded_number_has_few_bits_the_sign_and_the_scale(number: float, bits: int) -> None:
    rounded = towards_zero(number, bits)
    assert abs(rounded) <= abs(number) <= abs(rounded) * 2
    assert math.copysign(1, rounded) == math.copysign(1, number)
    assert towards_zero(rounded, bits) == rounded
    assert abs(math.frexp(rounded)[0]) * 2**bits % 1 == 0


def coarse(
    low: float, high: float, dtype: str = "float32", visible: frozenset[int] = frozenset(), **more: float
) -> Values:
    return coarse_values(Values(minimum=low, maximum=high, **more), dtype, visible)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-2713.65, 900.5, (-2048.0, 768.0)),
        (0.0003, 0.99, (0.0003662109375, 0.75)),
        (0.9, 0.95, (0.75, 1.0)),
        (-0.95, -0.9, (-1.0, -0.75)),
        (0.0, 1.0, (0.0, 1.0)),
        (7.3, 7.3, (6.0, 8.0)),
    ],
)
def test_a_float_range_becomes_one_within_it_or_the_next_around_it(
    low: float, high: float, expected: tuple[float, float]
) -> None:
    found = coarse(low, high)
    assert (found.minimum, found.maximum) == expected


def test_a_range_at_the_end_of_a_dtype_stays_in_it() -> None:
    assert coarse(60000.0, 65000.0, "float16").maximum == 65504.0
    assert coarse(-3.4e38, -3.3e38, "float32").minimum == -3.4028234663852886e38
    assert coarse(1.36e308, 1.4e308, "float64").maximum == sys.float_info.max


@given(st.integers(-(1 << 40), 1 << 40), st.integers(0, 1 << 40))
def test_an_integer_range_is_within_the_recorded_one_or_below_a_narrow_one(low: int, width: int) -> None:
    found = coarse(low, low + width, "int64")
    assert isinstance(found.minimum, int)
    assert isinstance(found.maximum, int)
    assert found.minimum <= found.maximum <= low + width
    assert found.minimum >= min(low, 0) * 2
    assert found.minimum >= 0 or low < 0, "an index stays one"


def test_an_index_that_the_sizes_tell_is_kept_and_another_is_not() -> None:
    found = coarse(0, 31336, "int64", frozenset({31337}))
    assert (found.minimum, found.maximum) == (0, 31336)
    assert coarse(0, 31337, "int64", frozenset({31337})).maximum == 31337
    assert coarse(0, 31335, "int64", frozenset({31337})).maximum == 24576
    assert coarse(-100, 9, "int64", frozenset({-100, 10})).minimum == -100


@example(1.3482698511467371e308, 1.3482698511467371e308, 0.0, 0.0, 0.0, 0)
@given(FINITE, FINITE, FINITE, st.floats(0, 1e300), st.floats(0, 1), st.integers(0, 1 << 40))
def test_what_is_left_is_valid_and_small_in_bits(
    low: float, high: float, mean: float, std: float, share: float, n: int
) -> None:
    low, high = sorted((low, high))
    found = coarse(low, high, "float64", mean=mean, std=std, zero_fraction=share, n_nan=n)
    assert found.minimum is not None
    assert found.maximum is not None
    assert found.mean is not None
    assert found.minimum <= found.mean <= found.maximum
    assert 0 <= found.zero_fraction <= share
    assert (found.n_nan > 0) == (n > 0)
    assert math.isfinite(found.minimum)
    assert math.isfinite(found.maximum)
    for number in (found.minimum, found.maximum, found.std, found.mean):
        assert number is not None
        is_end_of_dtype = abs(number) == sys.float_info.max
        assert is_end_of_dtype or abs(math.frexp(number)[0]) * 4 % 1 == 0


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(31337, 31337, (24576, 24576)), (70000, 73912, (65536, 68608)), (-7, -7, (-8, -8)), (1000, 1004, (768, 772))],
)
def test_a_narrow_integer_range_moves_down_with_its_width(low: int, high: int, expected: tuple[int, int]) -> None:
    found = coarse(low, high, "int64")
    assert (found.minimum, found.maximum) == expected


def test_structure_is_kept_since_it_names_no_value() -> None:
    values = Values(minimum=0, maximum=9, n_structured=50, n_distinct=7, max_multiplicity=20, order="ascending")
    found = coarse_values(values, "int64", frozenset({10}))
    assert found == values


def test_nothing_known_stays_nothing_known() -> None:
    assert coarse_values(Values(), "float32", frozenset()) == Values()
    assert coarse_values(Values(minimum=5.0), "float32", frozenset()).minimum == 4.0
