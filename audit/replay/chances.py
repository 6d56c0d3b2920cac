"""Chances of what random numbers look like: goodness of fit, moments, correlations, counts."""

from __future__ import annotations

import math

import torch

from audit.comparison import ChanceTest

#: Numbers looked at of one output: as many of its beginning as of its end.
MOST = 1 << 20
#: Fewer say nothing about a distribution; their support is checked.
LEAST = 32
#: Distances at which streams of threads, wavefronts and blocks meet.
LAGS = (1, 2, 3, 4, 32, 64, 128, 256, 512, 1024, 2048, 4096)
#: Pairs that a distance must leave, for their sum to be as good as normal far out.
PAIRS = 512
#: No number of a continuous law has a chance above so many eps: half of one for a uniform law, a quarter for a normal.
_STEPS = 4.0
#: A bin of a chi-square test holds at least so many expected numbers.
_LEAST_EXPECTED = 8.0
_LEAST_LOG10 = -300.0


def of_z(name: str, z: float) -> ChanceTest:
    """Both tails of a standard normal number."""
    from scipy.special import log_ndtr  # here, since it loads for some tenths of a second

    return ChanceTest(name, max((float(log_ndtr(-abs(z))) + math.log(2)) / math.log(10), _LEAST_LOG10), float(z))


def _logarithm(chance: float) -> float:
    return math.log10(chance) if chance > 0 else _LEAST_LOG10


def fit(u: torch.Tensor, slack: float) -> ChanceTest:
    """Kolmogorov-Smirnov of numbers that should be uniform on [0, 1]; rounding may have moved them by ``slack``."""
    from scipy.special import kolmogorov

    n = u.numel()
    ordered, steps = u.sort().values, torch.arange(n + 1, dtype=torch.float64) / n
    distance = max(float((steps[1:] - ordered).max()), float((ordered - steps[:-1]).max()))
    scaled = max(0.0, distance - slack) * math.sqrt(n)
    return ChanceTest("goodness of fit", _logarithm(float(kolmogorov(scaled))), distance)


def repeated(x: torch.Tensor, eps: float) -> ChanceTest:
    """How often the most frequent number stands there. A continuous law gives none more often than its step is wide."""
    from scipy.special import pdtrc

    n, most = x.numel(), int(x.unique(return_counts=True)[1].max())
    chance = min(1.0, n * float(pdtrc(most - 2, n * eps * _STEPS))) if most > 1 else 1.0
    return ChanceTest("most frequent number", _logarithm(chance), float(most))


def correlations(centred: torch.Tensor, row: int) -> list[ChanceTest]:
    """Of numbers with mean 0 and variance 1, with those that come ``lag`` later."""
    n, tests = centred.numel(), []
    for lag in dict.fromkeys((*LAGS, row)):
        if n - lag >= LEAST and lag > 0:
            tests.append(
                of_z(f"correlation at {lag}", float(torch.dot(centred[lag:], centred[:-lag])) / math.sqrt(n - lag))
            )
    return tests


def at_any_distance(centred: torch.Tensor, least: int) -> list[ChanceTest]:
    """The largest correlation of all distances that leave ``least`` pairs or more: halves, blocks of any size."""
    n, n_lags = centred.numel(), centred.numel() - least
    if n_lags < 1:
        return []
    spectrum = torch.fft.rfft(centred, 2 * n)
    sums = torch.fft.irfft(spectrum.abs().square(), 2 * n)[1 : n_lags + 1]
    z = sums.abs() / (n - torch.arange(1, n_lags + 1, dtype=torch.float64)).sqrt()
    lag = int(z.argmax()) + 1
    one = of_z(f"correlation at {lag}", float(z[lag - 1]))
    return [ChanceTest(one.name, min(one.log10_chance + math.log10(n_lags), 0.0), one.statistic)]


def counts(name: str, seen: torch.Tensor, expected: torch.Tensor) -> list[ChanceTest]:
    """Chi-square of counts over bins; neighbours are joined until each expects enough."""
    from scipy.special import chdtrc

    joined: list[tuple[float, float]] = []
    total_seen = total_expected = 0.0
    for a, b in zip(seen.tolist(), expected.tolist(), strict=True):
        total_seen, total_expected = total_seen + a, total_expected + b
        if total_expected >= _LEAST_EXPECTED:
            joined.append((total_seen, total_expected))
            total_seen = total_expected = 0.0
    if joined and total_expected:
        joined[-1] = (joined[-1][0] + total_seen, joined[-1][1] + total_expected)
    if len(joined) < 2:
        return []
    statistic = sum((a - b) ** 2 / b for a, b in joined)
    return [ChanceTest(name, _logarithm(float(chdtrc(len(joined) - 1, statistic))), statistic)]


def row_of(values: torch.Tensor) -> int:
    return values.shape[-1] if values.dim() > 1 else 0


def sampled(values: torch.Tensor) -> torch.Tensor:
    line = values.reshape(-1)
    if line.numel() > MOST:
        line = torch.cat([line[: MOST // 2], line[-MOST // 2 :]])
    return line.to(torch.float64)
