"""Laws of whole numbers without an upper bound, and of their kin: Poisson, geometric, binomial, gamma."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from audit.comparison import Distribution
from audit.replay.chances import LEAST, MOST, correlations, fit, row_of, sampled
from audit.replay.compare import eps_of

Arguments: TypeAlias = Mapping[str, Any]
Outputs: TypeAlias = Mapping[str, torch.Tensor]

#: Of numbers of our own, which must not be those that were drawn: programs and replays are seeded with small numbers.
_SEED = 0x9E3779B97F4A7C15 >> 1


def poisson(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    rate = arguments.get("self")
    if not torch.is_tensor(rate):
        return None
    rates = sampled(rate.expand(outputs[output].shape))
    return _of_counts(
        "Poisson", outputs[output], 0, rates, lambda k: torch.where(k < 0, 0.0, torch.special.gammaincc(k + 1, rates))
    )


def geometric(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    p = arguments.get("p")
    if not isinstance(p, float) or not 0 < p < 1:
        return None
    values = outputs[output]
    means = torch.full((min(values.numel(), MOST),), 1 / p, dtype=torch.float64)
    return _of_counts(f"geometric({p:g})", values, 1, means, lambda k: -torch.expm1(k.clamp(min=0) * math.log1p(-p)))


def binomial(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    from scipy.special import betainc

    values = outputs[output]
    n, p = (sampled(arguments[name].expand(values.shape)) for name in ("count", "prob"))

    def cdf(k: torch.Tensor) -> torch.Tensor:
        left = torch.from_numpy(
            betainc((n - k).clamp(min=0.5).numpy(), (k + 1).clamp(min=0.5).numpy(), (1 - p).numpy())
        )
        return torch.where(k < 0, 0.0, torch.where(k >= n, 1.0, left))

    return _of_counts("binomial", values, 0, n * p, cdf)


def gamma(output: str, outputs: Outputs, arguments: Arguments) -> Distribution | None:
    shape = arguments.get("self")
    if not torch.is_tensor(shape):
        return None
    x, alpha = sampled(outputs[output]), sampled(shape.expand(outputs[output].shape))
    outside = int(((x < 0) | x.isnan()).sum())
    if x.numel() < LEAST or outside:
        return Distribution("gamma", x.numel(), outside)
    return Distribution("gamma", x.numel(), 0, (fit(torch.special.gammainc(alpha, x), eps_of("float32")),))


def _of_counts(
    name: str, values: torch.Tensor, least: int, means: torch.Tensor, cdf: Callable[[torch.Tensor], torch.Tensor]
) -> Distribution:
    """Whole numbers from ``least`` on, each with its law: spread evenly within their steps of the distribution function
    they are uniform. Large ones may not be numbers of the dtype; then only the support is looked at."""
    x = sampled(values)
    outside = int(((x < least) | (x != x.floor()) | x.isnan()).sum())
    exact = not values.dtype.is_floating_point or float(means.max()) < 0.05 / eps_of(str(values.dtype)[6:])
    if x.numel() < LEAST or outside or not exact:
        return Distribution(name, x.numel(), outside)
    own = torch.Generator().manual_seed(_SEED)
    below, share = cdf(x - 1), torch.rand(x.numel(), generator=own, dtype=torch.float64)
    u = (below + share * (cdf(x) - below)).clamp(0.0, 1.0)
    tests = [fit(u, 0.0), *correlations((u - 0.5) * math.sqrt(12), row_of(values))]
    return Distribution(name, x.numel(), 0, tuple(tests))
