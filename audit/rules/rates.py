"""What a device can do in a second: as the run measured it there, else by the datasheet of the product.

Datasheet peaks (knowledge/gpus.csv) are scaled where the device shows fewer compute units, as a partition does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

from audit.knowledge.gpus import Gpu, achievable_tflops, gpu_alike, gpu_named
from audit.schema import Ceilings, DeviceInfo, Rate


@dataclass(frozen=True)
class CeilingRow:
    """One ceiling as measured, what others reached on the product, and its datasheet's peak, all in ``unit``."""

    name: str
    unit: str
    measured: Rate
    datasheet: float | None
    achievable: float | None = None


def ceiling_rows(device: DeviceInfo, ceilings: Ceilings | None) -> list[CeilingRow]:
    """Copy, products by dtype, launch; empty where nothing was measured."""
    if ceilings is None:
        return []
    bandwidth, _ = _peaks(device, "")
    rows = [CeilingRow("copy within memory", "GB/s", ceilings.copy_gbs, bandwidth)]
    for name, rate in ceilings.gemm_tflops.items():
        reached = achievable_tflops(gpu, name) if (gpu := product_of(device)) is not None else None
        rows.append(CeilingRow(f"matrix product, {name}", "TFLOPS", rate, _peaks(device, name)[1], reached))
    return [*rows, CeilingRow("launch of an op", "µs", ceilings.launch_us, None)]


def rates_of(device: DeviceInfo, ceilings: Ceilings | None, dtype: str) -> tuple[float | None, float | None]:
    """(10^9 bytes, 10^12 operations) a second; each as measured where it was, else by the product's datasheet.

    ``tf32`` is float32 whose mantissa may be cut; where a device does not cut it, its rate is that of float32.
    """
    bandwidth, tflops = _peaks(device, dtype)
    if ceilings is None:
        return bandwidth, tflops
    names = ("tf32", "float32") if dtype == "tf32" else (dtype,)
    measured = [_usable(ceilings.gemm_tflops.get(name)) for name in names]
    return _usable(ceilings.copy_gbs) or bandwidth, max(filter(None, measured), default=tflops)


def launch_us(ceilings: Ceilings | None) -> float | None:
    """Microseconds of an op that does next to nothing, where it was measured."""
    return _usable(ceilings.launch_us) if ceilings is not None else None


def cache_bytes(device: DeviceInfo) -> float:
    """Of the last level: as the device says, or as its product has (torch tells of no level behind the second)."""
    gpu = product_of(device)
    return max((gpu.cache_mib or 0.0) * (1 << 20) if gpu is not None else 0.0, _property(device, "L2_cache_size") or 0)


def _usable(rate: Rate | None) -> float | None:
    """None for what no device does: a stranger's run file may say anything."""
    return rate.median if rate is not None and isfinite(rate.median) and rate.median > 0 else None


def _peaks(device: DeviceInfo, dtype: str) -> tuple[float | None, float | None]:
    """The same by the datasheet."""
    gpu = product_of(device)
    if gpu is None:
        return None, None
    scale = _share_of_product(gpu, device)
    peak = _peak_tflops(gpu, dtype)
    return (gpu.bandwidth_gbs * scale if gpu.bandwidth_gbs else None), (peak * scale if peak else None)


def product_of(device: DeviceInfo) -> Gpu | None:
    """The GPU of the knowledge base that this is, by its name or by its size."""
    gpu = gpu_named(device.name)
    if gpu is not None:
        return gpu
    units, memory = _property(device, *_UNITS), _property(device, *_MEMORY)
    if units is None or memory is None:
        return None
    return gpu_alike("AMD" if device.backend == "hip" else "NVIDIA", units, memory)


def _share_of_product(gpu: Gpu, device: DeviceInfo) -> float:
    """A partition of a GPU has that share of its rates."""
    units = _property(device, *_UNITS)
    if not units or not gpu.compute_units:
        return 1.0
    return min(1.0, units / gpu.compute_units)


#: What a recording and torch call the same property.
_UNITS, _MEMORY = ("compute_units", "multi_processor_count"), ("total_memory_bytes", "total_memory")


def _property(device: DeviceInfo, *names: str) -> int | None:
    """The first of these that the device shows as a whole number."""
    shown = (device.properties.get(name, "") for name in names)
    return next((int(text) for text in shown if text.isdecimal() and len(text) < 20), None)


def _peak_tflops(gpu: Gpu, dtype: str) -> float | None:
    if dtype == "tf32":
        return max(filter(None, (gpu.fp32_tflops, gpu.tf32_tflops)), default=None)
    rates = {
        "float32": gpu.fp32_tflops,
        "float64": gpu.fp64_tflops,
        "float16": gpu.fp16_tflops,
        "bfloat16": gpu.bf16_tflops,
        "int8": gpu.int8_tflops,
    }
    return gpu.fp8_tflops if dtype.startswith("float8") else rates.get(dtype)
