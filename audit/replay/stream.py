"""A stream of random numbers that is the same on every machine and under every version of Python, numpy and torch.

The bits are those of Philox4x64-10, a counter-based generator (Salmon et al., SC 2011). numpy keeps the stream of a bit
generator stable for ever, but not what its distributions, or torch's, make of it. So uniform and normal numbers are
made here, by integer arithmetic and one exact scaling: no logarithm or cosine, whose last bits differ by library.
"""

from __future__ import annotations

import hashlib

import numpy as np
import torch

#: Random numbers are drawn for at most this many elements and then repeat: a weight of 130 million elements would take
#: seconds. A prime, so that no two rows of a power-of-two size are equal.
PERIOD = 4_194_301

_LANES = np.uint64(0x0000_FFFF_0000_FFFF)
_HALF_WORD = np.uint64(32)
_LOW_HALF = np.uint64(0xFFFF_FFFF)
#: Elements of a normal made in one go, so that temporaries stay in the cache.
_BLOCK = 1 << 14
#: Twelve lanes of 16 bits have this mean; their standard deviation is 65536 to one part in 2**32.
_LANE_SUM_MEAN = 6 * 65535


class Stream:
    """The random numbers of one purpose in one case; each method goes on where the last one stopped.

    Results are 1-D, float64 or int64. Longer ones than ``PERIOD`` are made by ``repeated``.
    """

    def __init__(self, seed: int, *names: object) -> None:
        digest = hashlib.sha256("/".join(map(str, (seed, *names))).encode()).digest()
        self._bits = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, n: int) -> np.ndarray:
        """``n`` words of 64 random bits, uint64."""
        return np.asarray(self._bits.random_raw(n), dtype=np.uint64)

    def uniform(self, n: int) -> torch.Tensor:
        """Multiples of 2**-53 in [0, 1)."""
        return torch.from_numpy((self.words(n) >> np.uint64(11)) * 2.0**-53)

    def normal(self, n: int) -> torch.Tensor:
        """Mean 0, deviation 1, within 6: the sum of twelve uniform numbers (Irwin-Hall), with 48 bits behind the point.

        Only sums of integers and a scaling by a power of two, so there is no rounding that a machine could do its way.
        """
        result = np.empty(n)
        for start in range(0, n, _BLOCK):
            part = result[start : start + _BLOCK]
            words = self.words(4 * len(part)).reshape(4, -1)
            pairs = np.zeros(len(part), np.uint64)  # two sums of six lanes, side by side in one word
            for word in words[:3]:
                pairs += word & _LANES
                pairs += (word >> np.uint64(16)) & _LANES
            total = (pairs & _LOW_HALF) + (pairs >> _HALF_WORD)
            fixed = ((total << _HALF_WORD) | (words[3] >> _HALF_WORD)).view(np.int64)
            part[:] = (fixed - (_LANE_SUM_MEAN << 32)) * 2.0**-48
        return torch.from_numpy(result)

    def integers(self, n: int, low: int, high: int) -> torch.Tensor:
        """Integers from ``low`` to ``high``, both included. Wide ranges have a bias below 2**-31."""
        span = high - low + 1
        words = self.words(n)
        if span >= 1 << 64:
            drawn = words
        elif span <= 1 << 32:
            drawn = (words >> _HALF_WORD) * np.uint64(span) >> _HALF_WORD
        else:
            drawn = words % np.uint64(span)
        return torch.from_numpy((drawn + np.uint64(low & ((1 << 64) - 1))).view(np.int64))

    def signs(self, n: int) -> torch.Tensor:
        """-1 or 1, int8."""
        bits = np.unpackbits(self.words(-(-n // 64)).astype("<u8").view(np.uint8), bitorder="little")[:n]
        return torch.from_numpy(bits.view(np.int8) * np.int8(2) - np.int8(1))

    def permutation(self, n: int) -> torch.Tensor:
        """The numbers 0 to n - 1 in random order."""
        return torch.from_numpy(np.argsort(self.words(n), kind="stable"))

    def distinct(self, n: int, low: int, high: int) -> torch.Tensor:
        """``n`` different integers in rising order, spread over ``low`` to ``high``, both of which are among them."""
        span = high - low + 1
        if n > span:
            raise ValueError(f"there are no {n} different integers from {low} to {high}")
        # One from each of n equal parts. Where the products need 128 bits they are left to Python's own integers.
        small = span * n < 1 << 62
        parts = span * np.arange(n + 1) // n if small else np.array([span * part // n for part in range(n + 1)], object)
        starts = torch.from_numpy((parts[:-1] + low).astype(np.int64))
        widths = torch.from_numpy(np.minimum(np.diff(parts), (1 << 63) - 1).astype(np.int64))
        offsets = torch.minimum((self.uniform(n) * widths).to(torch.int64), widths - 1)
        chosen = starts + offsets
        if n > 1:
            chosen[0], chosen[-1] = low, high
        return chosen


def repeated(drawn: torch.Tensor, n: int, start: int = 0) -> torch.Tensor:
    """``n`` elements that go round ``drawn``, from the ``start``-th of an endless row on."""
    start %= max(drawn.numel(), 1)
    if start + n <= drawn.numel():
        return drawn[start : start + n]
    result = torch.empty(n, dtype=drawn.dtype)
    done = 0
    while done < n:
        part = result[done : done + drawn.numel() - start]
        part.copy_(drawn[start : start + part.numel()])
        done, start = done + part.numel(), 0
    return result
