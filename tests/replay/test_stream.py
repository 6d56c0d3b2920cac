"""The random stream: its bits are pinned, so that an audit is the same on every machine and torch version."""

from __future__ import annotations

import pytest
import torch

from audit.replay.stream import PERIOD, Stream, repeated
from audit.replay.widen import move


def stream(*names: object) -> Stream:
    return Stream(7, *names)


def test_the_bits_are_these_for_ever():
    assert [hex(word) for word in Stream(0, "k", 0).words(3)] == [
        "0xd0e0a6fd44a33948",
        "0x21660f5e9bf9a7e7",
        "0xb042ce3c6203b463",
    ]


def test_what_is_made_of_the_bits_is_this_for_ever():
    s = Stream(0, "k", 0)
    assert s.uniform(2).tolist() == UNIFORM
    assert s.normal(3).tolist() == NORMAL
    assert s.integers(5, -2, 3).tolist() == INTEGERS
    assert s.signs(10).tolist() == SIGNS
    assert s.permutation(6).tolist() == PERMUTATION
    assert s.distinct(4, 10, 30).tolist() == DISTINCT


UNIFORM = [0.8159279220896111, 0.13046356258198566]
NORMAL = [0.40570781001400036, -0.021474798714521626, -0.27109578984001814]
INTEGERS = [0, -2, -1, -2, 3]
SIGNS = [-1, 1, -1, 1, -1, -1, 1, -1, 1, -1]
PERMUTATION = [2, 3, 4, 1, 0, 5]
DISTINCT = [10, 16, 24, 30]


def test_every_seed_case_and_operand_has_a_stream_of_its_own():
    first = {Stream(seed, key, position).words(1)[0] for seed in (0, 1) for key in "ab" for position in (0, 1)}
    assert len(first) == 8


def test_a_stream_goes_on_where_it_stopped():
    s, whole = stream("a"), stream("a").uniform(10)
    assert torch.equal(torch.cat((s.uniform(4), s.uniform(6))), whole)


def test_normal_numbers_have_the_moments_and_tails_of_a_normal_distribution():
    x = stream("n").normal(400_000)
    assert x.mean().item() == pytest.approx(0.0, abs=0.006)
    assert x.var().item() == pytest.approx(1.0, abs=0.01)
    assert (x**4).mean().item() == pytest.approx(2.9, abs=0.05)  # twelve uniform numbers: 3 - 0.1
    assert (x.abs() < 1).double().mean().item() == pytest.approx(0.683, abs=0.01)
    assert 4 < x.abs().max().item() < 6


def test_normal_numbers_fill_the_mantissa_of_single_precision():
    x = stream("n").normal(1000).float()
    assert ((x * 2**21) % 1 != 0).double().mean() > 0.4


def test_normal_numbers_do_not_depend_on_how_many_are_asked_for_at_once():
    blocks = 1 << 14
    assert torch.equal(stream("n").normal(3 * blocks)[: 2 * blocks], stream("n").normal(2 * blocks))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-3, 4), (5, 1 << 40), (-(1 << 63), (1 << 63) - 1)])
def test_integers_stay_in_range(low: int, high: int):
    drawn = stream(low, high).integers(2000, low, high)
    assert low <= int(drawn.min()) <= int(drawn.max()) <= high
    if high - low < 100:
        assert drawn.unique().tolist() == list(range(low, high + 1))


@pytest.mark.parametrize(("n", "low", "high"), [(1, 3, 3), (5, 0, 4), (50, -7, 1000), (3, -(1 << 63), (1 << 63) - 1)])
def test_distinct_integers_rise_from_end_to_end(n: int, low: int, high: int):
    chosen = stream(n, low).distinct(n, low, high).tolist()
    assert chosen == sorted(set(chosen))
    assert len(chosen) == n
    assert (chosen[0], chosen[-1]) == (low, high) or n == 1


def test_more_distinct_integers_than_there_are_is_refused():
    with pytest.raises(ValueError, match="no 4 different integers from 0 to 2"):
        stream().distinct(4, 0, 2)


def test_a_permutation_has_every_number_once():
    assert stream().permutation(100).sort().values.tolist() == list(range(100))


def test_what_is_repeated_goes_round():
    assert repeated(torch.tensor([1, 2, 3]), 8).tolist() == [1, 2, 3, 1, 2, 3, 1, 2]
    assert PERIOD % 2 == 1


def test_a_moved_element_is_one_rounding_step_up_or_down():
    x = torch.ones(100, dtype=torch.float64)
    move(x, torch.float16, stream("move"))
    assert set(x.tolist()) == {1 - 2.0**-10, 1 + 2.0**-10}
