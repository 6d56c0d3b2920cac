"""Outputs that are made of those of all blocks, and have no rows: put together from what each block gave."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from audit.comparison import TensorFact
from audit.replay.compare import Expected
from audit.replay.overload import arguments_of, base_of
from audit.replay.sampled.independent import Reduced
from audit.schema import Case, TensorSpec

_WEIGHT = "total_weight"


def _most_noise(expected: Expected) -> float:
    return max(expected.noise, 0.0 if expected.local is None else float(expected.local.values.max()))


@dataclass
class Sums:
    """Such as the gradient of a norm's weight: the sum, the mean, the root of the sum of squares, or a sum over that of
    its weights. Rounding errors of blocks are independent."""

    facts: Mapping[str, TensorFact]
    reduced: Reduced
    totals: dict[str, Tensor] = field(default_factory=dict)
    squares: dict[str, Tensor] = field(default_factory=dict)

    def add(self, name: str, expected: Expected, share: float) -> None:
        """``share``: of all rows."""
        wide = expected.wide if expected.wide is not None else expected.same
        if wide is None:
            return
        if not wide.is_floating_point():  # a sum of integers, exact as they go round
            self.totals[name] = self.totals.get(name, 0) + wide
            return
        noise = torch.full(wide.shape, _most_noise(expected), dtype=torch.float64)
        if self.reduced == "mean":
            wide, noise = wide * share, noise * share
        if self.reduced == "norm":
            wide, noise = wide.square(), noise * wide
        self.totals[name] = self.totals.get(name, 0.0) + wide
        self.squares[name] = self.squares.get(name, 0.0) + noise.square()

    def expected(self) -> dict[str, Expected]:
        found = {}
        for name, total in self.totals.items():
            if name not in self.squares:
                found[name] = Expected(name, self.facts[name], "exact", "", total)
                continue
            wide, noise = total, self.squares[name].sqrt()
            if self.reduced == "norm":
                wide = total.sqrt()
                noise = noise / wide.clamp_min(torch.finfo(wide.dtype).tiny)
            if self.reduced == "weighted" and name != _WEIGHT:
                wide, noise = wide / self.totals[_WEIGHT], noise / self.totals[_WEIGHT].clamp_min(1e-300)
            found[name] = Expected(name, self.facts[name], "numeric", "", None, wide, float(noise.max()))
        return found


@dataclass(frozen=True)
class _Block:
    """Moments of a ``share`` of all elements, and their noise. Numbers, since a tensor keeps what it was made with."""

    share: float
    variance: float
    mean: float
    noise: float
    noise_of_mean: float


@dataclass
class Moments:
    """Variance and mean of everything from those of the blocks (Chan, Golub and LeVeque). Their noise is not averaged
    away: it is that of the steps that each of them takes."""

    case: Case
    facts: Mapping[str, TensorFact]
    blocks: list[_Block] = field(default_factory=list)

    def add(self, found: Mapping[str, Expected], share: float) -> None:
        """``found``: variance without correction, and mean, of a ``share`` of all elements."""
        if {"output 0", "output 1"} <= found.keys():
            variance, mean = found["output 0"], found["output 1"]
            self.blocks.append(_Block(share, _value(variance), _value(mean), _most_noise(variance), _most_noise(mean)))

    def expected(self) -> dict[str, Expected]:
        if not math.isclose(sum(block.share for block in self.blocks), 1.0, rel_tol=1e-6):
            return {}  # a block could not be measured
        mean, noise_of_mean = self._average("mean"), self._average("noise_of_mean")
        inner, noise = self._average("variance"), self._average("noise")
        between = sum(block.share * (block.mean - mean) ** 2 for block in self.blocks)
        n = _n_elements(self.case)
        degrees = n - _correction(self.case)
        variance = (inner + between) * n / degrees if degrees > 0 else math.nan
        base, first, second = base_of(self.case.op), variance, mean
        if base.startswith("std"):
            first = math.sqrt(variance)
            noise = noise / (2 * first) if first else math.sqrt(noise)
        values = {"output": (first, noise), "output 0": (first, noise), "output 1": (second, noise_of_mean)}
        return {
            name: Expected(name, fact, "numeric", "", None, torch.tensor([value], dtype=torch.float64), off)
            for name, fact in self.facts.items()
            for value, off in [values[name]]
        }

    def _average(self, name: str) -> float:
        return float(sum(block.share * getattr(block, name) for block in self.blocks))


def _value(expected: Expected) -> float:
    values = expected.wide if expected.wide is not None else expected.same
    return math.nan if values is None else float(values)


def _n_elements(case: Case) -> int:
    return math.prod(case.args[0].sizes) if isinstance(case.args[0], TensorSpec) else 0


def _correction(case: Case) -> float:
    given = arguments_of(case)
    correction = given.get("correction")
    if isinstance(correction, (int, float)):
        return float(correction)
    return 0.0 if given.get("unbiased") is False else 1.0
