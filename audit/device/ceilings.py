"""What a device can do at most, measured on it: a copy, a matrix product in each dtype, the launch of an op.

Operands are random numbers: a product of zeros draws less power and runs faster than any real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import torch

from audit.schema import Ceilings, Rate, Timing

#: Times a call that may be repeated.
Stopwatch: TypeAlias = Callable[[Callable[[], object]], Timing]

#: Far beyond any cache (the largest is 256 MiB), and small beside any memory.
COPY_BYTES = 1 << 30
#: Below this a copy may never leave the cache.
MIN_COPY_BYTES = 64 << 20
#: Rows, columns and inner size of the products, of which the fastest counts: a card that draws all its power slows down
#: in the largest (an H200 to 721 TFLOPS in bf16 at 8192, where other products ran at 820), and the smallest does not
#: fill every card.
GEMM_SIZES = (2048, 4096, 8192)
#: Dtypes that many cards have at a 32nd of their rate.
_SLOW = frozenset({"float64"})
_FLOATS = ("float64", "float32", "float16", "bfloat16")


def measure_ceilings(
    device: torch.device, stopwatch: Stopwatch, copy_bytes: int = COPY_BYTES, gemm_sizes: Sequence[int] = GEMM_SIZES
) -> Ceilings:
    """Takes two or three seconds. A dtype whose product the device refuses is left out."""
    copied = _copy(device, stopwatch, copy_bytes)
    return Ceilings(copied, _products(device, stopwatch, gemm_sizes), _launch(device, stopwatch))


def _copy(device: torch.device, stopwatch: Stopwatch, n_bytes: int) -> Rate:
    """Of half as much, and half again, where memory is short. Raises OutOfMemoryError below ``MIN_COPY_BYTES``."""
    try:
        source = torch.rand(n_bytes // 4, device=device)
        target = torch.empty_like(source)
        return _rate(stopwatch(lambda: target.copy_(source)), 2 * n_bytes / 1e3)
    except torch.OutOfMemoryError:
        if n_bytes // 2 < MIN_COPY_BYTES:
            raise
    return _copy(device, stopwatch, n_bytes // 2)


def _products(device: torch.device, stopwatch: Stopwatch, sizes: Sequence[int]) -> dict[str, Rate]:
    found: dict[str, Rate] = {}
    for name in _FLOATS:
        with _tf32(False):
            _add(found, name, device, stopwatch, sizes)
        if name == "float32" and device.type == "cuda":
            with _tf32(True):
                _add(found, "tf32", device, stopwatch, sizes)
    return found


def _add(found: dict[str, Rate], name: str, device: torch.device, stopwatch: Stopwatch, sizes: Sequence[int]) -> None:
    for n in [min(sizes)] if name in _SLOW else sizes:
        try:
            rate = _product(torch.float32 if name == "tf32" else getattr(torch, name), device, stopwatch, n)
        except (RuntimeError, NotImplementedError):  # no kernel, or no memory: there is no ceiling to tell
            continue
        if name not in found or rate.median > found[name].median:
            found[name] = rate


def _product(dtype: torch.dtype, device: torch.device, stopwatch: Stopwatch, n: int) -> Rate:
    left, right = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
    return _rate(stopwatch(lambda: left @ right), 2.0 * n**3 / 1e6)


def _launch(device: torch.device, stopwatch: Stopwatch) -> Rate:
    one = torch.zeros(1, device=device)
    timing = stopwatch(lambda: one.add_(1.0))
    return Rate(timing.median_us, timing.iqr_us, timing.n)


def _rate(timing: Timing, amount: float) -> Rate:
    """``amount`` is done in one run; in the unit that ``amount`` a microsecond has."""
    fast = amount / max(timing.median_us - timing.iqr_us / 2, 1e-3)
    slow = amount / (timing.median_us + timing.iqr_us / 2)
    return Rate(amount / timing.median_us, fast - slow, timing.n)


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
