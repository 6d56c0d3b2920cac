"""The distance of two numbers in units in the last place: how many numbers of their dtype lie between them, plus one.

Numbers of a dtype are counted in rising order, from the most negative over zero to infinity, as Bruce Dawson does in
"Comparing Floating Point Numbers" (2012). So the distance is defined across zero and among subnormals, infinity is one
step beyond the largest number, -0.0 and 0.0 are one number, and it is never below 1 for two different numbers.
"""

from __future__ import annotations

import torch

#: Between a NaN and a number, and beyond what int64 holds (float64 numbers of opposite signs).
FAR = (1 << 63) - 1
#: ``histogram`` has at most this many entries: distances of 2**62 and more share the last.
_N_BUCKETS = 64

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def has_ulp(dtype: torch.dtype) -> bool:
    """Whether distances are defined: for floats and complex numbers, not for several numbers packed into a byte."""
    return (dtype.is_floating_point and dtype != getattr(torch, "float4_e2m1fn_x2", None)) or dtype.is_complex


def spacing_above_one(dtype: torch.dtype) -> float:
    """The distance of 1 to the next larger number of a floating dtype, of complex ones that of their parts.

    ``torch.finfo(...).eps`` is the same but for float8_e5m2fnuz, where torch 2.13 says 1/8; two bits of mantissa make
    it 1/4.
    """
    if dtype.itemsize > 1 or not has_ulp(dtype):
        return float(torch.finfo(dtype).eps)
    following = torch.ones(1, dtype=dtype).view(torch.uint8) + 1
    return float(following.view(dtype).to(torch.float32)) - 1.0


def ulp_distance(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """int64, at least 0, of two tensors of one dtype and shape; complex numbers have two, in a last dimension.

    0 where the numbers are equal; any NaN is 0 from any NaN and ``FAR`` from every number.
    """
    if a.dtype.is_complex:
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    first, second = _place(a), _place(b)
    distance = (first - second).abs_()
    if a.dtype == torch.float64:  # two numbers of opposite signs may be too far apart for int64
        apart = (first < 0) != (second < 0)
        too_far = apart & (first.abs() > FAR - second.abs())
        distance = torch.where(too_far, FAR, distance)
    nan, other = _nan(a), _nan(b)
    return torch.where(nan | other, torch.where(nan & other, 0, FAR), distance)


def _place(tensor: torch.Tensor) -> torch.Tensor:
    """The number's place among those of its dtype, 0 for both zeros."""
    if tensor.dtype == getattr(torch, "float8_e8m0fnu", None):  # powers of two, without sign or zero
        return tensor.contiguous().view(torch.uint8).to(torch.int64)
    bits = tensor.contiguous().view(_INTEGERS[tensor.dtype.itemsize])
    magnitudes = bits.to(torch.int64)
    return torch.where(magnitudes < 0, torch.iinfo(bits.dtype).min - magnitudes, magnitudes)


def _nan(tensor: torch.Tensor) -> torch.Tensor:
    return torch.isnan(tensor.to(torch.float32) if tensor.dtype.itemsize == 1 else tensor)


def histogram(distances: torch.Tensor) -> list[int]:
    """Counts of distances: entry 0 of 0, entry 1 of 1, entry 2 of 2 and 3, entry k of 2**(k-1) to 2**k - 1."""
    edges = torch.tensor([1 << power for power in range(_N_BUCKETS - 1)])
    buckets = torch.bucketize(distances.reshape(-1), edges, right=True)
    counts: list[int] = torch.bincount(buckets, minlength=_N_BUCKETS).tolist()
    return counts
