"""The ceilings of a device, measured on the CPU at small sizes: rates that are there, and those that are left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from audit.device.ceilings import MIN_COPY_BYTES, measure_ceilings
from audit.device.timing import repeat, wall_clock_us
from audit.schema import Timing

CPU = torch.device("cpu")


def stopwatch(call: Callable[[], object]) -> Timing:
    return repeat(lambda: wall_clock_us(call), 0.01)


def test_every_rate_is_measured_more_than_once() -> None:
    ceilings = measure_ceilings(CPU, stopwatch, copy_bytes=1 << 20, gemm_sizes=(64, 128))
    assert set(ceilings.gemm_tflops) == {"float64", "float32", "float16", "bfloat16"}
    for rate in (ceilings.copy_gbs, ceilings.launch_us, *ceilings.gemm_tflops.values()):
        assert rate.median > 0
        assert rate.iqr >= 0
        assert rate.n >= 5


def test_rates_are_amounts_over_time() -> None:
    ceilings = measure_ceilings(
        CPU, lambda call: Timing(1000.0, 200.0, 7, None), copy_bytes=1 << 30, gemm_sizes=(500, 1000)
    )
    assert ceilings.copy_gbs.median == pytest.approx(2147.48, rel=1e-4)  # 2 GiB, read and written, in a millisecond
    assert ceilings.gemm_tflops["float32"].median == pytest.approx(2.0)  # 2e9 operations in a millisecond
    assert ceilings.gemm_tflops["float32"].iqr == pytest.approx(2.0 / 0.9 - 2.0 / 1.1)
    assert (ceilings.launch_us.median, ceilings.launch_us.n) == (1000.0, 7)


def test_where_memory_is_short_a_smaller_copy_is_timed() -> None:
    sizes: list[int] = []

    def short_of_memory(call: Callable[[], object]) -> Timing:
        result = call()
        if isinstance(result, torch.Tensor) and result.nbytes >= MIN_COPY_BYTES:
            sizes.append(result.nbytes)
            if result.nbytes > MIN_COPY_BYTES:
                raise torch.OutOfMemoryError("no more than that")
        return Timing(1000.0, 0.0, 5, None)

    ceilings = measure_ceilings(CPU, short_of_memory, copy_bytes=4 * MIN_COPY_BYTES, gemm_sizes=(16,))
    assert [size // MIN_COPY_BYTES for size in sizes] == [4, 2, 1]
    assert ceilings.copy_gbs.median == pytest.approx(2 * MIN_COPY_BYTES / 1e6)
    with pytest.raises(torch.OutOfMemoryError):
        measure_ceilings(CPU, short_of_memory, copy_bytes=3 * MIN_COPY_BYTES, gemm_sizes=(16,))


def test_the_fastest_product_counts() -> None:
    def throttled(call: Callable[[], object]) -> Timing:
        result = call()
        n = result.shape[0] if isinstance(result, torch.Tensor) and result.dim() == 2 else 1
        return Timing({32: 1.0, 64: 4.0, 128: 64.0}.get(n, 1.0), 0.0, 5, None)

    ceilings = measure_ceilings(CPU, throttled, copy_bytes=1 << 10, gemm_sizes=(32, 64, 128))
    assert ceilings.gemm_tflops["float32"].median == pytest.approx(2 * 64**3 / 4.0 / 1e6)
    assert ceilings.gemm_tflops["float64"].median == pytest.approx(2 * 32**3 / 1.0 / 1e6)  # the smallest alone


def test_a_dtype_that_the_device_refuses_is_left_out() -> None:
    def refusing(call: Callable[[], object]) -> Timing:
        result = call()
        if isinstance(result, torch.Tensor) and result.dtype == torch.float64:
            raise RuntimeError("no fp64 here")
        return Timing(1.0, 0.0, 5, None)

    ceilings = measure_ceilings(CPU, refusing, copy_bytes=1 << 20, gemm_sizes=(16,))
    assert set(ceilings.gemm_tflops) == {"float32", "float16", "bfloat16"}


def test_the_switch_for_tf32_is_as_before() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    measure_ceilings(CPU, stopwatch, copy_bytes=1 << 10, gemm_sizes=(16,))
    assert torch.backends.cuda.matmul.allow_tf32 == before
