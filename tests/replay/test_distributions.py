"""Right random numbers pass, and each way to be wrong is found by the test that is made for it."""

from __future__ import annotations

import math

import pytest
import torch

from audit.replay.distributions import distribution_of

LIMIT = -10.5


def numbers(op, values, **arguments):
    return distribution_of(f"aten::{op}", "output", {"output": values}, arguments)


def _and_negated(x):
    return torch.cat([x, -x])


def worst(found):
    return min(found.tests, key=lambda test: test.log10_chance)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


RIGHT = {
    "rand.default": (lambda n: torch.rand(n), {}),
    "randn.default": (lambda n: torch.randn(n), {}),
    "uniform_.default": (lambda n: torch.empty(n).uniform_(-2, 5), {"from": -2.0, "to": 5.0}),
    "normal_.default": (lambda n: torch.empty(n).normal_(3, 0.1), {"mean": 3.0, "std": 0.1}),
    "exponential_.default": (lambda n: torch.empty(n).exponential_(2.0), {"lambd": 2.0}),
    "cauchy_.default": (lambda n: torch.empty(n).cauchy_(1.0, 2.0), {"median": 1.0, "sigma": 2.0}),
    "log_normal_.default": (lambda n: torch.empty(n).log_normal_(0.0, 1.0), {"mean": 0.0, "std": 1.0}),
    "randint.low": (lambda n: torch.randint(-3, 200, (n,)), {"low": -3, "high": 200}),
    "bernoulli_.float": (lambda n: torch.empty(n).bernoulli_(0.3), {"p": 0.3}),
    "randperm.default": (lambda n: torch.randperm(n), {"n": 0}),
    "geometric_.default": (lambda n: torch.empty(n).geometric_(0.3), {"p": 0.3}),
    "binomial.default": (
        lambda n: torch.binomial(torch.full((n,), 20.0), torch.full((n,), 0.3)),
        {"count": torch.full((1,), 20.0), "prob": torch.full((1,), 0.3)},
    ),
    "_standard_gamma.default": (lambda n: torch._standard_gamma(torch.full((n,), 2.5)), {"self": torch.tensor([2.5])}),
    "poisson.default": (lambda n: torch.poisson(torch.full((n,), 3.0)), {"self": torch.full((1,), 3.0)}),
}


@pytest.mark.parametrize("op", RIGHT)
@pytest.mark.parametrize("n", [50, 3000, 200_000])
def test_right_numbers_pass(op, n):
    make, arguments = RIGHT[op]
    found = numbers(op, make(n), **arguments)
    assert found.n_outside == 0
    assert worst(found).log10_chance > -7


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [3000, 200_000])
def test_right_numbers_of_few_bits_pass(dtype, n):
    assert worst(numbers("randn.default", torch.randn(n, dtype=dtype))).log10_chance > -7
    assert worst(numbers("rand.default", torch.rand(n, dtype=dtype))).log10_chance > -7


@pytest.mark.parametrize("op", RIGHT)
def test_right_numbers_pass_with_any_seed(op):
    make, arguments = RIGHT[op]
    for small in range(5):
        torch.manual_seed(small)
        assert worst(numbers(op, make(3000), **arguments)).log10_chance > -7


def test_false_alarms_are_as_rare_as_stated():
    """Of 300 outputs of right numbers none has a test below a ten-thousandth of a ten-thousandth."""
    chances = [worst(numbers("rand.default", torch.rand(2000))).log10_chance for _ in range(300)]
    assert min(chances) > -8
    assert sum(chance < -2 for chance in chances) < 90


@pytest.mark.parametrize(
    ("op", "values", "arguments", "test"),
    [
        ("randn.default", lambda: torch.randn(50_000) * 0.95, {}, "variance"),
        ("randn.default", lambda: torch.randn(50_000) + 0.05, {}, "mean"),
        ("rand.default", lambda: torch.rand(50_000).sqrt(), {}, "goodness of fit"),
        ("rand.default", lambda: torch.rand(5_000).clamp(min=0.02), {}, "most frequent number"),
        ("rand.default", lambda: torch.rand(256).repeat(40), {}, "correlation at 256"),
        ("randint.low", lambda: torch.randint(0, 9, (5000,)), {"low": 0, "high": 10}, "goodness of fit"),
        ("bernoulli_.float", lambda: torch.empty(5000).bernoulli_(0.4), {"p": 0.3}, "frequency"),
        ("randperm.default", lambda: torch.arange(500), {"n": 500}, "order"),
        ("randn.default", lambda: _and_negated(torch.randn(2500)), {}, "correlation at 2500"),
        ("bernoulli_.float", lambda: torch.empty(5000).bernoulli_(0.5).repeat(2), {"p": 0.5}, "correlation at 5000"),
        ("poisson.default", lambda: torch.full((2000,), 4.0), {"self": torch.tensor([4.0])}, "goodness of fit"),
        ("geometric_.default", lambda: torch.empty(2000).geometric_(0.2), {"p": 0.3}, "goodness of fit"),
        ("_standard_gamma.default", lambda: torch.rand(2000), {"self": torch.tensor([2.0])}, "goodness of fit"),
    ],
)
def test_wrong_numbers_are_found_by_their_test(op, values, arguments, test):
    found = numbers(op, values(), **arguments)
    assert worst(found).log10_chance < LIMIT
    assert test in {item.name for item in found.tests if item.log10_chance < LIMIT}


def test_what_a_law_cannot_give_is_counted():
    assert numbers("rand.default", torch.tensor([0.5, 1.5, math.nan])).n_outside == 2
    assert numbers("randint.low", torch.tensor([0, 9, 10, -1]), low=0, high=10).n_outside == 2
    assert numbers("randperm.default", torch.tensor([0, 0, 2])).n_outside == 1
    assert numbers("geometric_.default", torch.tensor([0.0, 1.0, 2.0]), p=0.5).n_outside == 1
    assert numbers("bernoulli_.float", torch.tensor([0.0, 0.5, 1.0]), p=0.5).n_outside == 1
    weights = torch.tensor([0.0, 1.0, 1.0])
    assert numbers("multinomial.default", torch.tensor([0, 1]), self=weights, replacement=False).n_outside == 1
    assert numbers("multinomial.default", torch.tensor([2, 2]), self=weights, replacement=False).n_outside == 1


def test_dropout_scales_what_it_keeps_and_its_mask_goes_with_it():
    source = torch.randn(100, 50)
    mask = torch.rand(100, 50) < 0.75
    right = {"output 0": source * mask / 0.75, "output 1": mask}
    arguments = {"input": source, "p": 0.25}
    for name in right:
        assert distribution_of("aten::native_dropout.default", name, right, arguments).n_outside == 0
    unscaled = {**right, "output 0": source * mask}
    assert distribution_of("aten::native_dropout.default", "output 0", unscaled, arguments).n_outside == int(mask.sum())
    apart = {**right, "output 1": mask.roll(1)}
    assert distribution_of("aten::native_dropout.default", "output 1", apart, arguments).n_outside > 1000


def test_a_deviation_of_zero_and_an_overflow_say_nothing():
    deviations = torch.tensor([0.0, 2.0]).repeat(500)
    values = torch.normal(torch.zeros(1000), deviations)
    found = numbers("normal.Tensor_Tensor", values, mean=torch.zeros(1000), std=deviations)
    assert (found.n, found.n_outside) == (500, 0)
    assert worst(found).log10_chance > -7
    source = torch.full((64,), 60000.0, dtype=torch.float16)
    kept = {"output 0": torch.full((64,), math.inf, dtype=torch.float16)}
    found = distribution_of("aten::native_dropout.default", "output 0", kept, {"input": source, "p": 0.5})
    assert found.n_outside == 0


def test_whole_numbers_that_the_dtype_has_not_are_left_alone():
    assert numbers("random_.from", torch.full((64,), 2.0**31), **{"from": 0, "to": 2**31}) is None


def test_of_other_ops_no_law_is_known():
    assert numbers("rrelu_with_noise.default", torch.rand(100)) is None
