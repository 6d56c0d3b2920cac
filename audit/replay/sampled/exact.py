"""Elements of an output that were computed exactly, and an output of which only these are compared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor

from audit.comparison import Comparison, TensorFact
from audit.replay.compare import Expected, error_between, numeric


@dataclass(frozen=True)
class Exact:
    """Elements that were computed in fp64, flat: their ``places`` in the output, and what else is known of them.

    ``own`` is what a correct algorithm in the output's dtype gives, ``change`` the worst change of ``wide`` when the
    operands move by one rounding step.
    """

    places: Tensor
    wide: Tensor
    own: Tensor
    change: float

    def compare(self, result: Comparison, elements: Tensor) -> Comparison:
        """``result`` with the errors of ``elements``, which the device has at ``places``."""
        largest, rms = error_between(self.own, self.wide)
        fact, noise = result.expected or TensorFact((), (), ""), max(largest, self.change)
        expected = Expected(result.name, fact, "numeric", "", self.own, self.wide, noise, largest, rms)
        found = numeric(result, expected, elements, self.places)
        return dataclasses.replace(found, n_compared=self.places.numel())


def together(first: Exact, second: Exact) -> Exact:
    """All elements of both, each once."""
    places, order = torch.cat((first.places, second.places)).sort(stable=True)
    fresh = torch.ones_like(places, dtype=torch.bool)
    fresh[1:] = places[1:] != places[:-1]
    wide, own = (torch.cat(pair)[order][fresh] for pair in ((first.wide, second.wide), (first.own, second.own)))
    return Exact(places[fresh], wide, own, max(first.change, second.change))


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
