"""What can be said before any case from the device and the environment alone. Pure: the session collects the facts.

Keys read from ``environment`` (all optional): ``torch`` (``2.13.0+rocm7.2``), ``hip`` (torch.version.hip), ``rocm``
(the installed ROCm's version), ``arch_list`` (torch.cuda.get_arch_list(), separated by spaces or commas), ``gpus``
(the arch of every visible GPU, likewise), and the variables of ``knowledge/environment_variables.csv`` by their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from audit.knowledge.archs import has_capability, newest_release_with_archs, version_tuple
from audit.knowledge.signals import load_variables
from audit.run_records import PreflightCheck
from audit.schema import DeviceInfo
from audit.verdicts import Finding

ARCH, OVERRIDE, MIXED, VERSIONS, VARIABLES = "arch", "gfx override", "mixed gpus", "rocm version", "variables"
TUNING = "TunableOp"
#: A check of ``audit.device.machine``, which runs one kernel.
PROBE = "probe"

#: Root cause codes by the name of the check; any other name is SUP119.
CODES = {ARCH: "SUP110", OVERRIDE: "SUP111", MIXED: "SUP112", VERSIONS: "SUP113", PROBE: "SUP114"}


def preflight(device: DeviceInfo, environment: Mapping[str, str]) -> tuple[PreflightCheck, ...]:
    """The checks that apply to this device; a check whose facts are missing is left out."""
    return (
        *_arch(device, environment),
        *_override(device, environment),
        *_mixed(device, environment),
        *_versions(device, environment),
        *_variables(device, environment),
        *_tuning(device, environment),
    )


def root_causes(checks: Iterable[PreflightCheck]) -> Iterator[Finding]:
    """Failed checks first, then warnings as notes, each with the remedy in its data."""
    order = {"failed": 0, "warning": 1}
    for check in sorted((check for check in checks if check.result in order), key=lambda check: order[check.result]):
        yield Finding(
            CODES.get(check.name, "SUP119"),
            "unsupported" if check.result == "failed" else "supported",
            check.message,
            {"check": check.name, "remedy": check.remedy},
        )


def _split(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.split(":")[0] for part in re.split(r"[\s,;]+", text.strip()) if part))


def _arch(device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    if device.backend == "none":
        release = newest_release_with_archs()
        listed, build = release.archs, f"the newest torch wheels known here ({release.torch_version})"
    elif device.backend in ("hip", "cuda"):
        listed, build = _split(environment.get("arch_list", "")), "this torch"
    else:
        return
    if not listed:
        return
    if device.arch in listed or (device.backend == "cuda" and _cuda_compatible(device.arch, listed)):
        yield PreflightCheck(ARCH, "ok", f"{build} has code for {device.arch}")
    else:
        yield PreflightCheck(
            ARCH,
            "failed",
            f"{build} has no code for {device.arch}, only for {', '.join(listed)}; every kernel fails there with "
            "'invalid device function'",
            "install a torch built for this GPU; HSA_OVERRIDE_GFX_VERSION helps only inside one ISA family",
        )


def _cuda_compatible(arch: str, listed: tuple[str, ...]) -> bool:
    """CUDA code runs on later minors of its major; PTX (``compute_``) is compiled for any later arch."""

    def split(name: str) -> tuple[int, int] | None:
        match = re.fullmatch(r"(?:sm|compute)_(\d+)(\d)[a-z]?", name)
        return (int(match[1]), int(match[2])) if match else None

    have = split(arch)
    for name in listed:
        code = split(name)
        if have and code and code <= have and (code[0] == have[0] or name.startswith("compute_")):
            return True
    return False


def _override(device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    value = environment.get("HSA_OVERRIDE_GFX_VERSION", "")
    if value and device.backend == "hip":
        yield PreflightCheck(
            OVERRIDE,
            "warning",
            f"HSA_OVERRIDE_GFX_VERSION={value} is set: the GPU calls itself {device.arch}, which it may not be",
            "unset it and install a torch built for the GPU; results hold for the disguise only",
        )


def _mixed(device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    archs = _split(environment.get("gpus", ""))
    if device.backend != "hip" or len(archs) < 2:
        return
    rocm = environment.get("hip", "")
    lesser = [arch for arch in archs if not has_capability("hipblaslt_preferred", arch, rocm)]
    effect = ""
    if lesser and len(lesser) < len(archs):
        effect = f"; because of {', '.join(lesser)} torch uses rocBLAS on all of them"
    yield PreflightCheck(
        MIXED,
        "warning",
        f"different GPUs are visible together: {', '.join(archs)}{effect}",
        "show torch one kind with HIP_VISIBLE_DEVICES",
    )


def _versions(device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    built, installed = version_tuple(environment.get("hip", "")), version_tuple(environment.get("rocm", ""))
    if device.backend != "hip" or not built or not installed:
        return
    texts = f"torch is built for ROCm {_dotted(built[:2])}, the installed ROCm is {_dotted(installed)}"
    if built[:2] == installed[:2]:
        yield PreflightCheck(VERSIONS, "ok", texts)
    else:
        order = "older" if installed[:2] < built[:2] else "newer"
        yield PreflightCheck(
            VERSIONS,
            "warning",
            f"{texts}, {order} than torch expects",
            "install matching versions; libraries that are loaded from outside the wheel may not fit",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _variables(device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    """One warning that names the variables which are set and change numbers or times."""
    effects = {"changes_numerics": "changes numbers", "affects_timing": "changes times"}
    found = [
        f"{variable.name}={environment[variable.name]} ({effects[variable.effect]})"
        for variable in load_variables()
        if variable.effect in effects and environment.get(variable.name, "") and "PATH" not in variable.name
    ]
    if found and device.backend == "hip":
        yield PreflightCheck(
            VARIABLES, "warning", f"set in the environment: {', '.join(found)}", "unset them where not meant"
        )


def _tuning(device: DeviceInfo, environment: Mapping[str, str]) -> Iterator[PreflightCheck]:
    """TunableOp that tunes while the audit runs: as the device's process says, else as its variables do."""
    state = device.properties.get(TUNING)
    if state is None:
        enabled = environment.get("PYTORCH_TUNABLEOP_ENABLED", "0") == "1"
        tunes = enabled and environment.get("PYTORCH_TUNABLEOP_TUNING", "1") != "0"
    else:
        tunes = ", tunes" in state
    if tunes and device.backend in ("hip", "cuda"):
        yield PreflightCheck(
            TUNING,
            "warning",
            "TunableOp tunes inside the audit: the first call of each product tries all its kernels, and what it finds "
            "may go into the program's own file of results",
            "set PYTORCH_TUNABLEOP_TUNING=0, so that results are looked up only",
        )
