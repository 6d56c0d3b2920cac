"""GPUs by arch: configuration, FP8 flavour, quirks. Peak rates are dense TFLOPS, memory in GiB, bandwidth in GB/s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache, lru_cache

from audit.knowledge.tables import rows

_GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """One product. Numbers that no source gives are None; ``confidence`` says how good the others are.

    ``wavefront`` is in threads, rates are in TFLOPS, memory in GiB, bandwidth in GB/s, ``cache_mib`` (the last level)
    in MiB. Rates are the larger of vector and matrix units.
    """

    arch: str
    product: str
    vendor: str
    family: str
    wavefront: int | None
    compute_units: int | None
    fp64_tflops: float | None
    fp32_tflops: float | None
    tf32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    fp8_tflops: float | None
    int8_tflops: float | None
    memory_gib: float | None
    bandwidth_gbs: float | None
    cache_mib: float | None
    fp8_flavour: str
    official_rocm: str
    quirks: str
    confidence: str
    source: str


@cache
def load_gpus() -> tuple[Gpu, ...]:
    """Every GPU that the data file knows."""
    return tuple(
        Gpu(
            arch=row["gfx"],
            product=row["product"],
            vendor=row["vendor"],
            family=row["arch"],
            wavefront=_leading(row["wavefront"]),
            compute_units=_leading(row["compute_units"]),
            fp64_tflops=_larger(row["fp64_vector"], row["fp64_matrix"]),
            fp32_tflops=_larger(row["fp32_vector"], row["fp32_matrix"]),
            tf32_tflops=_number(row["tf32_xf32"]),
            fp16_tflops=_number(row["fp16"]),
            bf16_tflops=_number(row["bf16"]),
            fp8_tflops=_number(row["fp8"]),
            int8_tflops=_number(row["int8"]),
            memory_gib=_number(row["mem_gib"]),
            bandwidth_gbs=_number(row["mem_bw_gbs"]),
            cache_mib=_larger(row["l2_mib"], row["llc_mib"]),
            fp8_flavour=row["fp8_flavour"],
            official_rocm=row["official_rocm_support"],
            quirks=row["quirks"],
            confidence=row["confidence"],
            source=row["source"],
        )
        for row in rows("gpus.csv")
    )


def gpus_of(arch: str) -> tuple[Gpu, ...]:
    """The products of one arch, ``gfx942``; empty where the arch is unknown."""
    return tuple(gpu for gpu in load_gpus() if gpu.arch == arch)


@cache
def achievable_tflops(gpu: Gpu, dtype: str) -> float | None:
    """What a large product reached at most, by its maker or by others; None where nobody whom we know of has told."""
    found = (row for row in rows("achievable.csv") if (row["product"], row["dtype"]) == (gpu.product, dtype))
    return next((float(row["tflops"]) for row in found), None)


@lru_cache(maxsize=64)
def gpu_named(name: str) -> Gpu | None:
    """The product whose every word stands in the name that a driver gives, ``AMD Instinct MI300X VF``."""
    words = set(name.split())
    for gpu in sorted(load_gpus(), key=lambda gpu: -len(gpu.product)):
        wanted = set(re.sub(r"\(.*", "", gpu.product).split())
        if wanted and wanted <= words:
            return gpu
    return None


@lru_cache(maxsize=64)
def gpu_alike(vendor: str, compute_units: int, memory_bytes: int) -> Gpu | None:
    """A product of so many compute units and so much memory; None where products of several archs have them."""
    found = [
        gpu
        for gpu in load_gpus()
        if gpu.vendor == vendor
        and gpu.compute_units == compute_units
        and gpu.memory_gib is not None
        and 0.9 < memory_bytes / (gpu.memory_gib * _GIB) <= 1.01  # a part of it is the driver's
    ]
    return found[0] if len({gpu.arch for gpu in found}) == 1 else None


def _leading(text: str) -> int | None:
    """``32 (or 64)`` -> 32, which torch reports for RDNA; None where no number leads."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None


def _larger(*texts: str) -> float | None:
    return max((number for text in texts if (number := _number(text)) is not None), default=None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "shared (<=128)", "emulated": not a number, kept in the data file for people
