"""The device that a profiler's trace was recorded on, from the trace's own properties."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from audit.knowledge.gpus import Gpu, gpu_alike, gpu_named
from audit.schema import Backend, DeviceInfo

#: Properties of the trace that become its environment, by the names that the rest of the audit gives them.
_VERSIONS = {"hip_runtime_version": "hip", "cuda_runtime_version": "cuda", "nccl_version": "nccl"}
_MAX_TEXT = 80


def device_of(properties: Mapping[str, Any], index: int | None, launches: Iterable[str]) -> DeviceInfo:
    """The device of that index; ``launches`` are the names of the runtime's calls, for traces that say nothing else.

    Where the device has no name, one of the same compute units and memory gives the arch, and ``arch_from`` says so.
    """
    backend = _backend(properties, launches)
    entry = _entry(properties, index)
    name = _text(entry.get("name"))
    facts = {
        "compute_units": entry.get("numSms"),
        "wavefront": entry.get("warpSize"),
        "total_memory_bytes": entry.get("totalGlobalMem"),
    }
    shown = {key: str(value) for key, value in facts.items() if type(value) is int and 0 < value < 1 << 62}
    if backend == "cuda":
        arch = _cuda_arch(entry)
    elif named := gpu_named(name):
        arch = named.arch
    elif alike := _alike(entry, backend):
        arch = alike.arch
        shown["arch_from"] = f"compute units and memory, which are those of {alike.product}"
    else:
        arch = "unknown"
    return DeviceInfo(backend, name or f"unnamed {'AMD' if backend == 'hip' else 'NVIDIA'} GPU", arch, shown)


def environment_of(properties: Mapping[str, Any]) -> dict[str, str]:
    """Versions and the place among the ranks; nothing else of a file that may hold anything."""
    environment: dict[str, str] = {}
    distributed = properties.get("distributedInfo")
    distributed = distributed if isinstance(distributed, dict) else {}
    for key, name in _VERSIONS.items():
        if version := _version(key, properties.get(key, distributed.get(key))):
            environment[name] = version
    for key in ("rank", "world_size"):
        if type(distributed.get(key)) is int:
            environment[key] = str(distributed[key])
    return environment


def _backend(properties: Mapping[str, Any], launches: Iterable[str]) -> Backend:
    """HIP only where something says so: CUDA claims less."""
    names = list(launches)
    says_hip = any(key.startswith(("hip_", "roctracer", "rocprofiler")) for key in properties)
    return "hip" if says_hip or any(name.startswith("hip") for name in names) else "cuda"


def _entry(properties: Mapping[str, Any], index: int | None) -> Mapping[str, Any]:
    """The device with that id; else the first, for a process may number what it sees otherwise."""
    listed = properties.get("deviceProperties")
    entries: Sequence[Any] = listed if isinstance(listed, list) else []
    devices = [entry for entry in entries if isinstance(entry, dict)]
    return next((entry for entry in devices if entry.get("id") == index), devices[0] if devices else {})


def _text(value: Any) -> str:
    return " ".join(value.split())[:_MAX_TEXT] if isinstance(value, str) else ""


def _alike(entry: Mapping[str, Any], backend: Backend) -> Gpu | None:
    units, memory = entry.get("numSms"), entry.get("totalGlobalMem")
    if type(units) is not int or type(memory) is not int:
        return None
    return gpu_alike("AMD" if backend == "hip" else "NVIDIA", units, memory)


def _cuda_arch(entry: Mapping[str, Any]) -> str:
    major, minor = entry.get("computeMajor"), entry.get("computeMinor")
    return f"sm_{major}{minor}" if type(major) is int and type(minor) is int and 0 < major < 100 else "unknown"


def _version(key: str, value: Any) -> str:
    """``6.4.43483`` of HIP's 60443483, ``12.4`` of CUDA's 12040; a text is left as it is."""
    if key == "hip_runtime_version" and type(value) is int and 0 < value < 1 << 40:
        return f"{value // 10_000_000}.{value // 100_000 % 100}.{value % 100_000}"
    if key == "cuda_runtime_version" and type(value) is int and 0 < value < 1 << 40:
        return f"{value // 1000}.{value % 1000 // 10}"
    return value if isinstance(value, str) and re.fullmatch(r"[\w.+-]{1,40}", value) else ""
