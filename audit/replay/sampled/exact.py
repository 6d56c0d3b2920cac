"""Elements of an output that were computed exactly, and an output of which only these are compared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.comparison import Comparison, TensorFact
from audit.replay.compare import Expected, LocalNoise, error_between, numeric

#: Errors that tell the noise of a row: rows with fewer elements are taken together with those beside them.
_FEWEST = 16


@dataclass(frozen=True)
class Exact:
    """Elements that were computed in fp64, flat: their ``places`` in the output, and what else is known of them.

    ``own`` is what a correct algorithm in the output's dtype gives; ``noise`` how far rounding may carry each, fp64.
    """

    places: Tensor
    wide: Tensor
    own: Tensor
    noise: Tensor

    @property
    def most_noise(self) -> float:
        return float(self.noise.max()) if self.noise.numel() else 0.0

    def compare(self, result: Comparison, elements: Tensor) -> Comparison:
        """``result`` with the errors of ``elements``, which the device has at ``places``."""
        largest, rms = error_between(self.own, self.wide)
        fact, local = result.expected or TensorFact((), (), ""), LocalNoise(self.noise, 1)
        expected = Expected(
            result.name, fact, "numeric", "", self.own, self.wide, self.most_noise, largest, rms, local=local
        )
        found = numeric(result, expected, elements, self.places)
        return dataclasses.replace(found, n_compared=self.places.numel())


def worst_of_rows(a: Tensor, b: Tensor) -> Tensor:
    """The largest absolute difference along the last dimension, fp64; what is not finite in either does not count."""
    return (a.to(torch.float64) - b.to(torch.float64)).abs_().nan_to_num_(0.0, 0.0, 0.0).amax(-1)


def noise_by_row(worst: Tensor, n_each: int, dtype: torch.dtype, scale: Tensor | None = None) -> Tensor:
    """The noise of each element, flat, in rows of ``n_each`` that have the ``worst`` errors given.

    Each row has its own, in units of its ``scale`` (the same for all where None) that of rows beside it where they have
    few elements, and the median row's where that is more: a quiet row may be quiet by chance. In float64 it is the
    largest for all, as there is no run of a lower precision that would show a row's own.
    """
    if dtype == torch.float64:
        return worst.max().expand(worst.numel() * n_each)
    sizes = torch.ones_like(worst) if scale is None else scale
    shares = torch.where(sizes > 0, worst / sizes, 0.0).flatten()
    n_joined = -(-_FEWEST // n_each)
    if n_joined > 1:
        joined = torch.nn.functional.pad(shares, (0, -shares.numel() % n_joined)).view(-1, n_joined).amax(1)
        shares = joined.repeat_interleave(n_joined)[: shares.numel()]
    noise = torch.maximum(worst.flatten(), shares.clamp_min(float(shares.median())) * sizes.flatten())
    return noise.repeat_interleave(n_each)


def together(first: Exact, second: Exact) -> Exact:
    """All elements of both, each once; with the larger noise of one that is in both."""
    places, order = torch.cat((first.places, second.places)).sort(stable=True)
    wide, own, noise = (
        torch.cat(pair)[order]
        for pair in ((first.wide, second.wide), (first.own, second.own), (first.noise, second.noise))
    )
    fresh = torch.ones_like(places, dtype=torch.bool)
    fresh[1:] = places[1:] != places[:-1]
    again = (~fresh).nonzero().flatten()
    noise[again - 1] = torch.maximum(noise[again - 1], noise[again])
    return Exact(places[fresh], wide[fresh], own[fresh], noise[fresh])


@dataclass(frozen=True)
class ExactParts:
    """An output of which the rest is not seen, but for NaN and Inf where it ``is_finite`` by its operands."""

    exact: Exact
    is_finite: bool

    def compare(self, result: Comparison, actual: Tensor) -> Comparison:
        found = self.exact.compare(result, actual[self.exact.places])
        unseen = 1 - self.exact.places.numel() / max(actual.numel(), 1)
        found = dataclasses.replace(found, unseen_fraction=max(0.0, unseen))
        if self.is_finite and not bool(torch.isfinite(torch.stack(torch.aminmax(actual))).all()):
            n_nan, n_inf = int(torch.isnan(actual).sum()), int(torch.isinf(actual).sum())
            found = dataclasses.replace(found, n_nan_mismatch=n_nan, n_inf_mismatch=n_inf)
        return found
