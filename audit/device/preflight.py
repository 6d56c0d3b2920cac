"""Looks at the machine before any case: one root cause is one headline, not five hundred verdicts.

Pure: every check is a function from ``Machine`` to what it found, or None where it does not apply.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from audit.device.environment import Machine, describe, steering_variables
from audit.schema import PreflightCheck

#: The oldest torch that this audit was written against.
OLDEST_TORCH = (2, 9)

#: The spool holds the operands and outputs of one case; below this a large case may not fit.
LEAST_FREE_BYTES = 4 * 2**30


def preflight(machine: Machine) -> tuple[PreflightCheck, ...]:
    """Every check that applies, in the order in which a person would look."""
    return tuple(found for check in CHECKS if (found := check(machine)) is not None)


def torch_version(machine: Machine) -> PreflightCheck:
    build = f"ROCm build, HIP {machine.hip}" if machine.hip else f"CUDA {machine.cuda}" if machine.cuda else "CPU build"
    found = f"torch {machine.torch} ({build})"
    if _numbers(machine.torch) < OLDEST_TORCH:
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


def arch_in_build(machine: Machine) -> PreflightCheck | None:
    """A wheel without code for the GPU fails every kernel with ``invalid device function``."""
    if not machine.hip or not machine.gpus:
        return None
    built = {arch.split(":")[0] for arch in machine.arch_list}
    missing = sorted({gpu.arch for gpu in machine.gpus} - built)
    if missing:
        message = f"this torch has no code for {', '.join(missing)}, only for {' '.join(sorted(built)) or 'no arch'}"
        return PreflightCheck("arch", "failed", message, "install a torch build for this GPU")
    return PreflightCheck("arch", "ok", f"torch has code for {', '.join(sorted({gpu.arch for gpu in machine.gpus}))}")


def arch_is_real(machine: Machine) -> PreflightCheck | None:
    value = machine.variables.get("HSA_OVERRIDE_GFX_VERSION")
    if value is None:
        return None
    message = f"HSA_OVERRIDE_GFX_VERSION={value}: the GPU pretends to be another arch, so kernels may be wrong or crash"
    return PreflightCheck("arch override", "warning", message, "unset it where torch has code for the real arch")


def gpus_alike(machine: Machine) -> PreflightCheck | None:
    """hipBLASLt is the default only where every visible GPU prefers it (torch 2.13, CUDAHooks.cpp)."""
    arches = sorted({gpu.arch for gpu in machine.gpus})
    if len(arches) < 2:
        return None
    message = f"GPUs of different arch are visible ({', '.join(arches)}); libraries choose by the weakest of them"
    return PreflightCheck("mixed gpus", "warning", message, "show one kind with HIP_VISIBLE_DEVICES")


def rocm_versions_match(machine: Machine) -> PreflightCheck | None:
    """Versions are compared as numbers: 7.2 is followed by 7.13, then 10.1."""
    if not machine.hip or not machine.system_rocm:
        return None
    ours, theirs = _numbers(machine.hip), _numbers(machine.system_rocm)
    if ours == theirs:
        return PreflightCheck("rocm", "ok", f"torch and /opt/rocm are both {'.'.join(map(str, ours))}")
    message = f"torch was built for HIP {machine.hip}, /opt/rocm is {machine.system_rocm}"
    return PreflightCheck("rocm", "warning", message, "use a torch wheel of the same ROCm release where results differ")


def one_kernel(machine: Machine) -> PreflightCheck | None:
    if machine.probe == "not run":
        return None
    if machine.probe == "passed":
        return PreflightCheck("one kernel", "ok", "a first kernel gave the right answer")
    return PreflightCheck("one kernel", "failed", f"a first kernel failed: {machine.probe}", "see the checks above")


def steered(machine: Machine) -> PreflightCheck | None:
    """Variables that change numbers, kernels or times: the run is honest about them, the reader should know."""
    effects = steering_variables()
    words = {"changes_numerics": "numbers", "selects_kernel": "kernels", "affects_timing": "times"}
    found = [
        f"{name}={value} ({words[effects[name]]})"
        for name, value in machine.variables.items()
        if effects.get(name) in words
    ]
    if not found:
        return PreflightCheck("variables", "ok", "no variable is set that is known to steer kernels")
    return PreflightCheck("variables", "warning", f"set, and steering: {'; '.join(found)}", "unset what is not meant")


def disk(machine: Machine) -> PreflightCheck:
    free = f"{machine.free_bytes / 2**30:.1f} GiB free for temporary files"
    if machine.free_bytes < LEAST_FREE_BYTES:
        return PreflightCheck("disk", "warning", free, "set TMPDIR to a larger disk")
    return PreflightCheck("disk", "ok", free)


#: A new check is a function above and its line here.
CHECKS: tuple[Callable[[Machine], PreflightCheck | None], ...] = (
    torch_version,
    gpu_found,
    arch_in_build,
    arch_is_real,
    gpus_alike,
    rocm_versions_match,
    one_kernel,
    steered,
    disk,
)


def _numbers(version: str) -> tuple[int, int]:
    """Major and minor: ``7.13.60800-96e30b`` is (7, 13)."""
    parts = re.findall(r"\d+", version)
    return (int(parts[0]), int(parts[1])) if len(parts) > 1 else (0, 0)
