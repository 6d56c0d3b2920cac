"""What a device can do at most, measured on it: a copy, a matrix product in each dtype, the launch of an op.

Operands are random numbers: a product of zeros draws less power and runs faster than any real one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

from audit.schema import Ceilings, Rate, Timing

#: Times a call that may be repeated.
Stopwatch: TypeAlias = Callable[[Callable[[], object]], Timing]

#: Far beyond any cache (the largest is 256 MiB), and small beside any memory.
COPY_BYTES = 1 << 30
#: Rows, columns and inner size of the product: where the rate no longer grows on the fastest cards (1.1 TFLOP).
GEMM_SIZE = 8192
#: The same for dtypes that many cards have at a 32nd of their rate.
SLOW_GEMM_SIZE = 2048
_SLOW = frozenset({"float64"})
_FLOATS = ("float64", "float32", "float16", "bfloat16")


def measure_ceilings(
    device: torch.device, stopwatch: Stopwatch, copy_bytes: int = COPY_BYTES, gemm_size: int = GEMM_SIZE
) -> Ceilings:
    """Takes a second or two. A dtype whose product the device refuses is left out."""
    copied = _copy(device, stopwatch, copy_bytes)
    return Ceilings(copied, _products(device, stopwatch, gemm_size), _launch(device, stopwatch))


def _copy(device: torch.device, stopwatch: Stopwatch, n_bytes: int) -> Rate:
    source = torch.rand(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    return _rate(stopwatch(lambda: target.copy_(source)), 2 * n_bytes / 1e3)


def _products(device: torch.device, stopwatch: Stopwatch, size: int) -> dict[str, Rate]:
    found: dict[str, Rate] = {}
    for name in _FLOATS:
        n = min(size, SLOW_GEMM_SIZE) if name in _SLOW else size
        with _tf32(False):
            _add(found, name, device, stopwatch, n)
        if name == "float32" and device.type == "cuda":
            with _tf32(True):
                _add(found, "tf32", device, stopwatch, n)
    return found


def _add(found: dict[str, Rate], name: str, device: torch.device, stopwatch: Stopwatch, n: int) -> None:
    dtype = torch.float32 if name == "tf32" else getattr(torch, name)
    try:
        left, right = (torch.randn(n, n, device=device).to(dtype) for _ in range(2))
        found[name] = _rate(stopwatch(lambda: left @ right), 2.0 * n**3 / 1e6)
    except (RuntimeError, NotImplementedError):  # no kernel, or no memory: there is no ceiling to tell
        return


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
