"""GPUs by arch: configuration, FP8 flavour, quirks. Peak rates are dense TFLOPS, memory in GiB, bandwidth in GB/s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from audit.knowledge.tables import rows


@dataclass(frozen=True)
class Gpu:
    """One product. Numbers that no source gives are None; ``confidence`` says how good the others are.

    ``wavefront`` is in threads, rates are in TFLOPS, memory in GiB, bandwidth in GB/s.
    """

    arch: str
    product: str
    vendor: str
    family: str
    wavefront: int | None
    compute_units: int | None
    fp32_tflops: float | None
    fp16_tflops: float | None
    bf16_tflops: float | None
    memory_gib: float | None
    bandwidth_gbs: float | None
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
            fp32_tflops=_number(row["fp32_vector"]),
            fp16_tflops=_number(row["fp16"]),
            bf16_tflops=_number(row["bf16"]),
            memory_gib=_number(row["mem_gib"]),
            bandwidth_gbs=_number(row["mem_bw_gbs"]),
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


def _leading(text: str) -> int | None:
    """``32 (or 64)`` -> 32, which torch reports for RDNA; None where no number leads."""
    match = re.match(r"\d+", text)
    return int(match[0]) if match else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None  # "shared (<=128)", "emulated": not a number, kept in the data file for people
