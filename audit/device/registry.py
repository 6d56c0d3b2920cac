"""Devices by the name that a user gives: ``hip``, ``cuda:1``, ``sim``, ``sim:faults.py``, ``cpu``, ``none``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from audit.device import gpu
from audit.device.cpu import CpuDevice
from audit.device.places import gpu_index, parts, places
from audit.device.protocol import Device
from audit.errors import UsageError

NAMES = ("auto", "hip", "hip:N", "cuda", "cuda:N", "sim", "sim:FAULTS.py", "cpu", "none")


def _open_sim() -> Device:
    from audit.device.sim.device import SimDevice  # registers a backend in this process: only when asked for by name

    return SimDevice()


def _open_gpu() -> Device:
    return gpu.GpuDevice()


#: One line a device.
_DEVICES: dict[str, Callable[[], Device]] = {"hip": _open_gpu, "cuda": _open_gpu, "sim": _open_sim, "cpu": CpuDevice}


def resolve(name: str) -> str:
    """What ``name`` means here: ``auto`` is hip, else cuda, else ``none``; a list (``cuda:0,cuda:1``) stays one.
    Opens nothing.

    Raises UsageError: ``unknown-device``, ``no-device`` when the one asked for is not there, ``sim-unavailable`` when
    this torch cannot simulate one, ``bad-fault-file`` when there is no such file. That the file loads is found out by
    ``open_device``.
    """
    if name == "auto":
        found = gpu.flavour()
        return found if found is not None and torch.cuda.is_available() else "none"
    names = parts(name)
    if len(names) == 1:
        return _resolve_one(name)
    if len({part.partition(":")[0] for part in names}) > 1 or names[0] == "none":
        raise UsageError(f"--device {name}: devices of one run must be of one kind", "unknown-device")
    return ",".join(_resolve_one(part) for part in names)


def _resolve_one(name: str) -> str:
    kind = name if gpu_index(name) is None else name.partition(":")[0]
    if name.startswith("sim:"):
        path = Path(name.removeprefix("sim:"))
        if not path.is_file():
            raise UsageError(f"there is no fault file {path}; expected --device sim:FAULTS.py", "bad-fault-file")
    elif kind not in _DEVICES and name != "none":
        raise UsageError(f"unknown device {name!r}; choose one of {', '.join(NAMES)}", "unknown-device")
    if kind in ("hip", "cuda"):
        if problem := _absence(kind):
            raise UsageError(problem, "no-device")
        places(name)
    if name.partition(":")[0] == "sim" and (problem := _sim_absence()):
        raise UsageError(problem, "sim-unavailable")
    return name


def open_device(name: str) -> Device:
    """Opens the device in this process. Raises UsageError like ``resolve``, and what the device itself raises."""
    resolved = resolve(name)
    if resolved == "none":
        message = "there is no device to open: no HIP and no CUDA GPU was found; use --device sim or --device none"
        raise UsageError(message, "no-device")
    if resolved.startswith("sim:"):
        from audit.device.sim.device import SimDevice

        return SimDevice.from_file(Path(resolved.removeprefix("sim:")))
    return _DEVICES[resolved]()


def _sim_absence() -> str:
    """Why this torch cannot simulate a device, or an empty string."""
    from audit.device.sim import backend  # a process that simulates nothing loads nothing of it

    return backend.absence()


def _absence(name: str) -> str:
    """Why there is no HIP (CUDA) device here and what to do, or an empty string."""
    built_for = gpu.flavour()
    vendor, build = ("AMD", "ROCm") if name == "hip" else ("NVIDIA", "CUDA")
    if built_for is None:
        return (
            f"--device {name} needs a {build} build of torch, and torch {torch.__version__} is a CPU build; install a "
            f"{build} build from pytorch.org, or use --device sim or --device none"
        )
    if built_for != name:
        return (
            f"--device {name} needs a {build} build of torch, and torch {torch.__version__} is built for "
            f"{built_for.upper()}; use --device {built_for}, or install a {build} build"
        )
    if not torch.cuda.is_available():
        return (
            f"torch {torch.__version__} is a {build} build but finds no {vendor} GPU; check the driver"
            f"{' (rocminfo)' if name == 'hip' else ' (nvidia-smi)'}, the permissions on the device files, and "
            f"{'HIP_VISIBLE_DEVICES' if name == 'hip' else 'CUDA_VISIBLE_DEVICES'}"
        )
    return ""
