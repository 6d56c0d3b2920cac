"""Random numbers of a device against the distribution that they were asked for; measures chances and judges nothing.

Each test gives the chance that right numbers look as bad: goodness of fit (Kolmogorov-Smirnov, or chi-square over the
values of a discrete law), mean, variance, and correlation at the lags of threads, blocks and rows. What no right
numbers can be (beyond the support, twice in a permutation, kept by dropout and scaled otherwise) is counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch

from audit.comparison import ChanceTest, Distribution
from audit.replay.attention_dropout import attention_dropout
from audit.replay.chances import (
    LEAST,
    PAIRS,
    at_any_distance,
    correlations,
    counts,
    fit,
    of_z,
    repeated,
    row_of,
    sampled,
)
from audit.replay.compare import BLOCK, eps_of
from audit.replay.counted_laws import binomial, gamma, geometric, poisson
from audit.replay.overload import base_of

#: ULPs between ``input / (1 - p)`` and ``input * (1 / (1 - p))``, as a multiple of eps.
_SCALE_SLACK = 4.0
Arguments: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Law:
    """A continuous law: its distribution function, its moments where they exist, and what it can give."""

    name: str
    cdf: Callable[[torch.Tensor], torch.Tensor]
    low: float = -math.inf
    high: float = math.inf
    mean: float | None = None
    deviation: float | None = None
    kurtosis: float = 3.0


def distribution_of(op: str, output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    """What the tests say of one output of a random op, or None where no law is known for it.

    ``outputs`` are all of the device's by name, in their shapes; ``arguments`` the call's by name, on the CPU.
    """
    find = _TESTS.get(base_of(op))
    values = outputs[output].detach()
    if find is None or not values.numel():
        return None
    return find(output, outputs, arguments)


# --- continuous laws ---------------------------------------------------------------------------------------------


def _rounded(bound: float, dtype: torch.dtype) -> float:
    """What a number at a bound of a law is in ``dtype``: -0.99999 in half precision is -1."""
    return float(torch.tensor(bound, dtype=torch.float64).to(dtype)) if dtype.is_floating_point else bound


def _against(law: Law, values: torch.Tensor) -> Distribution:
    x, eps = sampled(values), eps_of(str(values.dtype).removeprefix("torch."))
    low, high = (_rounded(bound, values.dtype) for bound in (law.low, law.high))
    outside = int(((x < min(low, law.low)) | (x > max(high, law.high)) | x.isnan()).sum())
    x = x[torch.isfinite(x)]
    if x.numel() < LEAST:
        return Distribution(law.name, x.numel(), outside)
    u = law.cdf(x).clamp(0.0, 1.0)
    tests = [fit(u, eps), repeated(x, eps)]
    if law.mean is not None and law.deviation:
        tests += _moments(x, law.mean, law.deviation, law.kurtosis, eps)
    centred = (u - 0.5) * math.sqrt(12)
    tests += [*correlations(centred, row_of(values)), *at_any_distance(centred, PAIRS)]
    return Distribution(law.name, x.numel(), outside, tuple(tests))


def _moments(x: torch.Tensor, mean: float, deviation: float, kurtosis: float, eps: float) -> list[ChanceTest]:
    """z of mean and variance; rounding may shift each by a step."""
    n = x.numel()
    off = float(x.mean()) - mean
    off = math.copysign(max(0.0, abs(off) - eps * (abs(mean) + deviation)), off)
    spread = float(((x - mean) / deviation).square().mean()) - 1
    spread = math.copysign(max(0.0, abs(spread) - 4 * eps), spread)
    return [
        of_z("mean", off / deviation * math.sqrt(n)),
        of_z("variance", spread * math.sqrt(n / (kurtosis - 1))),
    ]


def _uniform(low: float, high: float) -> Law:
    width = high - low
    cdf = lambda x: (x - low) / width  # noqa: E731
    return Law(f"uniform({low:g}, {high:g})", cdf, low, high, (low + high) / 2, width / math.sqrt(12), 1.8)


def _normal(mean: float, deviation: float) -> Law:
    cdf = lambda x: torch.special.ndtr((x - mean) / deviation)  # noqa: E731
    return Law(f"normal({mean:g}, {deviation:g})", cdf, mean=mean, deviation=deviation)


def _exponential(rate: float) -> Law:
    cdf = lambda x: -torch.expm1(-rate * x)  # noqa: E731
    return Law(f"exponential({rate:g})", cdf, 0.0, math.inf, 1 / rate, 1 / rate, 9.0)


def _cauchy(median: float, sigma: float) -> Law:
    return Law(f"Cauchy({median:g}, {sigma:g})", lambda x: torch.atan((x - median) / sigma) / math.pi + 0.5)


def _log_normal(mean: float, deviation: float) -> Law:
    cdf = lambda x: torch.special.ndtr((x.log() - mean) / deviation)  # noqa: E731
    return Law(f"log-normal({mean:g}, {deviation:g})", cdf, 0.0)


def _of_law(law: Callable[[Arguments], Law | None]) -> _Test:
    def test(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
        found = law(arguments)
        return None if found is None else _against(found, outputs[output])

    return test


def _normal_of_tensors(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    """``normal``: mean and deviation are numbers or tensors."""
    values = outputs[output]
    mean, deviation = arguments.get("mean", 0.0), arguments.get("std", 1.0)
    if not torch.is_tensor(mean) and not torch.is_tensor(deviation):
        return _against(_normal(float(mean), float(deviation)), values) if deviation else None
    centred = (values.double() - mean) / deviation
    return _against(_normal(0.0, 1.0), centred[torch.isfinite(centred)].to(values.dtype))


# --- discrete laws -----------------------------------------------------------------------------------------------

_Test: TypeAlias = Callable[[str, Outputs, Arguments], "Distribution | None"]
#: A discrete range of more values than this is cut into so many bins.
_BINS = 64


def _integers(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    low = arguments.get("low", arguments.get("from", 0)) or 0
    high = arguments.get("high", arguments.get("to"))
    if high is None or torch.is_tensor(high) or torch.is_tensor(low) or high <= low:
        return None
    dtype = outputs[output].dtype
    if dtype.is_floating_point and max(-low, high) > 2 / torch.finfo(dtype).eps:
        return None  # not every whole number is one of the dtype's, and the last may round up
    x, n_values = sampled(outputs[output]), high - low
    inside = (x >= low) & (x < high) & (x == x.floor())
    name, outside = f"integers from {low} to {high - 1}", int((~inside).sum())
    x = x[inside]
    if x.numel() < LEAST:
        return Distribution(name, x.numel(), outside)
    n_bins = min(n_values, _BINS)
    edges = [low + n_values * i // n_bins for i in range(n_bins + 1)]
    seen = torch.histogram(x, torch.tensor(edges, dtype=torch.float64)).hist
    expected = torch.tensor([b - a for a, b in pairwise(edges)]) * (x.numel() / n_values)
    tests = counts("goodness of fit", seen, expected)
    if n_values > 1:
        deviation = math.sqrt((n_values**2 - 1) / 12)
        tests += correlations((x - (low + high - 1) / 2) / deviation, row_of(outputs[output]))
    return Distribution(name, x.numel(), outside, tuple(tests))


def _permutation(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    x = outputs[output].reshape(-1).to(torch.int64)
    n, order = x.numel(), x.sort().values
    outside = int((order != torch.arange(n)).sum())
    if n < LEAST or outside:
        return Distribution(f"permutation of {n}", n, outside)
    centred = (x.double() - (n - 1) / 2) / math.sqrt((n**2 - 1) / 12)
    ramp = (torch.arange(n).double() - (n - 1) / 2) / math.sqrt((n**2 - 1) / 12)
    tests = [of_z("order", float(torch.dot(centred, ramp)) / math.sqrt(n)), *correlations(centred, 0)]
    return Distribution(f"permutation of {n}", n, 0, tuple(tests))


def _flips(name: str, seen: torch.Tensor, chance: torch.Tensor, row: int, outside: int) -> Distribution:
    """``seen`` is 0 or 1, each with its ``chance``; both flat and fp64."""
    certain = (chance <= 0) | (chance >= 1)
    outside += int((seen[certain] != chance[certain].clamp(0, 1)).sum())
    seen, chance = seen[~certain], chance[~certain]
    if seen.numel() < LEAST:
        return Distribution(name, seen.numel(), outside)
    spread = (chance * (1 - chance)).sqrt()
    tests = [of_z("frequency", float((seen - chance).sum()) / float(spread.square().sum().sqrt()))]
    if float(spread.square().sum()) > LEAST:
        tests += correlations((seen - chance) / spread, row)
        if 0.05 < float(chance.mean()) < 0.95:  # of rare flips few products make the sum
            tests += at_any_distance((seen - chance) / spread, 8 * PAIRS)
    if float(chance.max()) > float(chance.min()):
        rising = (chance - chance.mean()) * (seen - chance)
        scale = float(((chance - chance.mean()) * spread).square().sum().sqrt())
        tests += [of_z("frequency against chance", float(rising.sum()) / scale)] if scale else []
    return Distribution(name, seen.numel(), outside, tuple(tests))


def _bernoulli(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    values = outputs[output]
    chance = arguments.get("p")
    if chance is None:
        chance = arguments.get("self")
    if chance is None or (not torch.is_tensor(chance) and not 0 <= chance <= 1):
        return None
    wide = torch.as_tensor(chance, dtype=torch.float64).expand(values.shape)
    x = sampled(values)
    outside = int(((x != 0) & (x != 1)).sum())
    name = "Bernoulli" if torch.is_tensor(chance) else f"Bernoulli({chance:g})"
    return _flips(name, x.clamp(0, 1).round(), sampled(wide), row_of(values), outside)


def _dropout(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    """What is kept is the input over the chance of keeping it; mask and gradient go with what was kept."""
    source, p = arguments.get("input"), arguments.get("p")
    first = next(iter(outputs))
    if not torch.is_tensor(source) or p is None or not 0 < p < 1 or outputs[first].shape != source.shape:
        return None
    name, values, gradient = f"dropout({p:g})", outputs[output], arguments.get("gradient")
    if output != first and values.dtype != torch.bool and (gradient is None or values.shape != source.shape):
        return None
    given = values if gradient is None else gradient.expand(values.shape)
    lines = [tensor.detach().reshape(-1) for tensor in (source, outputs[first], values, given)]
    n_wrong, flips = 0, []
    for start in range(0, source.numel(), BLOCK):
        x, result, of_it, incoming = (line[start : start + BLOCK] for line in lines)
        kept, usable = result != 0, _usable(x, p)
        if output == first:
            n_wrong += _differs(of_it, x.to(torch.float64) / (1 - p), kept & usable)
            flips.append(kept[usable])
        elif values.dtype == torch.bool:
            n_wrong += int(((of_it != kept) & usable).sum())
        else:
            wanted = torch.where(kept, incoming.to(torch.float64) / (1 - p), 0.0)
            n_wrong += _differs(of_it, wanted, usable)
    if output != first:
        return Distribution(name, values.numel(), n_wrong)
    seen = sampled(torch.cat(flips))
    return _flips(name, seen, torch.full_like(seen, 1.0 - p), row_of(values), n_wrong)


def _usable(x: torch.Tensor, p: float) -> torch.Tensor:
    """Where an element that was kept can be told from one that was not, and is finite."""
    limits, magnitude = torch.finfo(x.dtype), x.to(torch.float64).abs()
    return (magnitude > limits.smallest_normal) & (magnitude < limits.max * (1 - p))


def _differs(values: torch.Tensor, wanted: torch.Tensor, where: torch.Tensor) -> int:
    eps = eps_of(str(values.dtype).removeprefix("torch."))
    wrong = (values.to(torch.float64) - wanted).abs() > _SCALE_SLACK * eps * wanted.abs()
    return int((wrong & where).sum())


def _multinomial(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    weights = arguments.get("self")
    if not torch.is_tensor(weights):
        return None
    drawn = outputs[output]
    rows = weights.detach().reshape(-1, weights.shape[-1]).to(torch.float64)
    drawn = drawn.reshape(rows.shape[0], -1)
    inside = (drawn >= 0) & (drawn < rows.shape[1])
    chance = rows.gather(1, drawn.clamp(0, rows.shape[1] - 1))
    outside = int((~inside | (chance <= 0)).sum())
    if not arguments.get("replacement"):
        ordered = drawn.sort(1).values
        outside += int((ordered[:, 1:] == ordered[:, :-1]).sum())
        return Distribution("multinomial", drawn.numel(), outside)
    share = rows / rows.sum(1, keepdim=True)
    seen = torch.zeros(rows.shape[1], dtype=torch.float64)
    seen.index_add_(0, drawn[inside], torch.ones(int(inside.sum()), dtype=torch.float64))
    expected = share.sum(0) * drawn.shape[1]
    order = expected.argsort(descending=True)
    one_law = bool((share == share[:1]).all())
    tests = counts("goodness of fit", seen[order], expected[order]) if one_law else []
    return Distribution("multinomial", drawn.numel(), outside, tuple(tests))


_TESTS: dict[str, _Test] = {
    "uniform": _of_law(lambda a: _uniform(a["from"], a["to"]) if a["to"] > a["from"] else None),
    "rand": _of_law(lambda a: _uniform(0.0, 1.0)),
    "rand_like": _of_law(lambda a: _uniform(0.0, 1.0)),
    "randn": _of_law(lambda a: _normal(0.0, 1.0)),
    "randn_like": _of_law(lambda a: _normal(0.0, 1.0)),
    "normal": _normal_of_tensors,
    "exponential": _of_law(lambda a: _exponential(a["lambd"]) if a["lambd"] > 0 else None),
    "cauchy": _of_law(lambda a: _cauchy(a["median"], a["sigma"]) if a["sigma"] > 0 else None),
    "log_normal": _of_law(lambda a: _log_normal(a["mean"], a["std"]) if a["std"] > 0 else None),
    "randint": _integers,
    "randint_like": _integers,
    "random": _integers,
    "randperm": _permutation,
    "bernoulli": _bernoulli,
    "native_dropout": _dropout,
    "dropout": _dropout,
    "poisson": poisson,
    "geometric": geometric,
    "binomial": binomial,
    "_standard_gamma": gamma,
    "scaled_dot_product_attention": attention_dropout,
    "_scaled_dot_product_flash_attention": attention_dropout,
    "_scaled_dot_product_efficient_attention": attention_dropout,
    "multinomial": _multinomial,
}


def covered() -> Sequence[str]:
    """The ops, by base name, whose numbers are tested."""
    return tuple(_TESTS)
