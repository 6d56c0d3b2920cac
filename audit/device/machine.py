"""Looks at the machine itself: does torch see a GPU, why not, does a kernel run, is there room.

What follows from a run's device and environment alone is judged in ``audit.rules.preflight``; here is what only a look
at this machine tells. Every check is a pure function from ``Machine`` to what it found, None where it does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from audit.device.environment import Machine, describe
from audit.run_records import PreflightCheck

#: The oldest torch that this audit was written against.
OLDEST_TORCH = (2, 9)

#: The spool holds the operands and outputs of one case; below this a large case may not fit.
LEAST_FREE_BYTES = 4 * 2**30


def machine_checks(machine: Machine) -> tuple[PreflightCheck, ...]:
    """Every check that applies, in the order in which a person would look."""
    return tuple(found for check in CHECKS if (found := check(machine)) is not None)


def torch_version(machine: Machine) -> PreflightCheck:
    build = f"ROCm build, HIP {machine.hip}" if machine.hip else f"CUDA {machine.cuda}" if machine.cuda else "CPU build"
    found = f"torch {machine.torch} ({build})"
    if _major_minor(machine.torch) < OLDEST_TORCH:
        oldest = ".".join(str(part) for part in OLDEST_TORCH)
        return PreflightCheck("torch", "warning", f"{found} is older than {oldest}", "use a newer torch")
    return PreflightCheck("torch", "ok", found)


def gpu_found(machine: Machine) -> PreflightCheck:
    if machine.gpus:
        return PreflightCheck("gpu", "ok", "; ".join(describe(gpu) for gpu in machine.gpus))
    if not machine.hip and not machine.cuda:
        remedy = "install a ROCm build of torch to measure; --device sim and --device none work without a GPU"
        return PreflightCheck("gpu", "warning", "this torch is a CPU build and sees no GPU", remedy)
    denied = [node for node, state in machine.nodes.items() if state == "no permission"]
    if machine.hip and denied:
        remedy = "add the user to the groups render and video, then log in again"
        return PreflightCheck("gpu", "failed", f"no GPU is seen: no permission on {', '.join(denied)}", remedy)
    if machine.hip and machine.driver is None:
        remedy = "load the amdgpu driver; in a container pass --device /dev/kfd --device /dev/dri"
        return PreflightCheck("gpu", "failed", "no GPU is seen: the amdgpu driver is not loaded", remedy)
    return PreflightCheck(
        "gpu", "failed", "torch is a GPU build and sees no GPU", "see *_VISIBLE_DEVICES and the driver"
    )


def amdgpu_driver(machine: Machine) -> PreflightCheck | None:
    if machine.driver is None:
        return None
    return PreflightCheck("amdgpu driver", "ok", f"amdgpu {machine.driver}")


def one_kernel(machine: Machine) -> PreflightCheck | None:
    if machine.probe == "not run":
        return None
    if machine.probe == "passed":
        return PreflightCheck("probe", "ok", "a first kernel gave the right answer")
    return PreflightCheck("probe", "failed", f"a first kernel failed: {machine.probe}", "see the other checks")


def disk(machine: Machine) -> PreflightCheck:
    free = f"{machine.free_bytes / 2**30:.1f} GiB free for temporary files"
    if machine.free_bytes < LEAST_FREE_BYTES:
        return PreflightCheck("disk", "warning", free, "set TMPDIR to a larger disk")
    return PreflightCheck("disk", "ok", free)


#: A new check is a function above and its line here.
CHECKS: tuple[Callable[[Machine], PreflightCheck | None], ...] = (
    torch_version,
    gpu_found,
    amdgpu_driver,
    one_kernel,
    disk,
)


def _major_minor(version: str) -> tuple[int, int]:
    parts = re.findall(r"\d+", version)
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 else (0, 0)
