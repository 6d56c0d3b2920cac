"""What this machine is: versions, GPUs, driver, and the variables that steer kernels. An allow-list, never a dump.

Nothing here touches the device but ``probe_kernel``, which does so in a child process.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from audit.knowledge.signals import load_variables

#: Variables with these prefixes steer ROCm's libraries and PyTorch; those named in the knowledge base are shown too.
PREFIXES = ("HIP_", "HSA_", "ROCM_", "MIOPEN_", "ROCBLAS_", "HIPBLASLT_", "PYTORCH_", "TORCH_")

#: A name that carries a secret, whatever its prefix.
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY", re.IGNORECASE)

#: Numbers, switches, arch names, short lists: what a variable that steers kernels holds.
_PLAIN_VALUE = re.compile(r"[\w.,:;+=-]{0,32}")

#: A home folder at the start of a path.
_HOME = re.compile(r"(?<![^:;,=\s])/((home|Users)/[^/:;,\s]+|root)(?=[/:;,\s]|$)")

_PACKAGES = ("numpy", "safetensors", "torchvision", "transformers", "triton", "pytorch-triton-rocm")

_PROBE = "import torch; x = torch.ones(1024, device='cuda'); assert float((x + x).sum()) == 2048.0"


@dataclass(frozen=True)
class Gpu:
    """One GPU as torch sees it. ``arch`` is ``gfx942`` or ``sm_90``; ``features`` follow it (``sramecc+:xnack-``)."""

    name: str
    arch: str
    features: str = ""
    n_units: int = 0
    memory_bytes: int = 0


@dataclass(frozen=True)
class Machine:
    """Facts for the preflight. ``nodes`` maps a device file to ``ok``, ``absent`` or ``no permission``.

    ``arch_list`` is what the torch build has code for. ``driver`` is the amdgpu module's version, or the kernel's own
    (``built in``), None where it is not loaded. ``system_rocm`` is the ROCm under /opt/rocm, not the one in the wheel.
    ``probe`` is ``passed``, ``not run``, or what went wrong with one kernel in a child process.
    """

    torch: str
    hip: str | None = None
    cuda: str | None = None
    gpus: tuple[Gpu, ...] = ()
    arch_list: tuple[str, ...] = ()
    driver: str | None = None
    system_rocm: str | None = None
    nodes: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    free_bytes: int = 0
    probe: str = "not run"


def steering_variables() -> dict[str, str]:
    """Environment variables known to steer kernels, by name, with their effect (``selects_kernel``, ...)."""
    return {variable.name: variable.effect for variable in load_variables()}


def shown_variables(environ: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    """The variables of ``environ`` that a report may show.

    A known variable is shown with its value, the home folder as ``~``. One that only has a steering prefix is shown
    where its value is plainly a setting; a path, an address or a long string is withheld, its name is not.
    """
    shown = {}
    for name, value in sorted(environ.items()):
        if _SECRET_NAME.search(name):
            continue
        if name in known:
            shown[name] = _HOME.sub("~", value)
        elif name.startswith(PREFIXES):
            shown[name] = value if _PLAIN_VALUE.fullmatch(value) else "(set, value withheld)"
    return shown


def look_at_machine(probe: bool = False) -> Machine:
    """Collects the facts; with ``probe`` one kernel is run in a child process on the first GPU."""
    gpus = _gpus()
    return Machine(
        torch=torch.__version__,
        hip=torch.version.hip,
        cuda=torch.version.cuda,
        gpus=gpus,
        arch_list=tuple(torch.cuda.get_arch_list()) if gpus else (),
        driver=_amdgpu_driver(Path("/sys/module/amdgpu")),
        system_rocm=_read(Path("/opt/rocm/.info/version")),
        nodes=_device_nodes(Path("/dev")),
        variables=shown_variables(os.environ, steering_variables()),
        free_bytes=shutil.disk_usage(tempfile.gettempdir()).free,
        probe=probe_kernel() if probe and gpus else "not run",
    )


def collect_environment() -> dict[str, str]:
    """What a run file says of its surroundings: text by name, and the shown variables by their own names.

    ``audit.rules.preflight`` reads ``hip`` (what torch was built for), ``rocm`` (what is installed), ``arch_list``,
    ``gpus`` (the arch of each) and the variables.
    """
    machine = look_at_machine()
    named = {
        "python": platform.python_version(),
        "os": platform.platform(),
        "torch": machine.torch,
        "hip": machine.hip,
        "cuda": machine.cuda,
        "rocm": machine.system_rocm,
        "amdgpu": machine.driver,
        "arch_list": " ".join(machine.arch_list),
        "gpus": " ".join(gpu.arch for gpu in machine.gpus),
        **{f"gpu {index}": describe(gpu) for index, gpu in enumerate(machine.gpus)},
        **{package: _version_of(package) for package in _PACKAGES},
        **machine.variables,
    }
    return {name: value for name, value in named.items() if value}


def describe(gpu: Gpu) -> str:
    """``AMD Instinct MI300X (gfx942:sramecc+:xnack-), 304 units, 191.7 GiB``."""
    arch = f"{gpu.arch}:{gpu.features}" if gpu.features else gpu.arch
    return f"{gpu.name or 'unnamed GPU'} ({arch}), {gpu.n_units} units, {gpu.memory_bytes / 2**30:.1f} GiB"


def probe_kernel(timeout_s: float = 120.0) -> str:
    """``passed``, or what became of one small kernel in a child process. A first kernel may take a minute to load."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROBE], capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {timeout_s:.0f} s"
    if done.returncode == 0:
        return "passed"
    last_line = (done.stderr.strip().splitlines() or [""])[-1]
    return f"killed by signal {-done.returncode}" if done.returncode < 0 else last_line


def _gpus() -> tuple[Gpu, ...]:
    if not torch.cuda.is_available():
        return ()
    return tuple(_gpu(torch.cuda.get_device_properties(index)) for index in range(torch.cuda.device_count()))


def _gpu(properties: object) -> Gpu:
    """From torch's device properties; never from the capability, which is (9, 0) for gfx90a as for an H100."""
    if torch.version.hip:
        arch, _, features = str(getattr(properties, "gcnArchName", "")).partition(":")
    else:
        arch, features = f"sm_{getattr(properties, 'major', 0)}{getattr(properties, 'minor', 0)}", ""
    return Gpu(
        name=str(getattr(properties, "name", "")),
        arch=arch,
        features=features,
        n_units=int(getattr(properties, "multi_processor_count", 0)),
        memory_bytes=int(getattr(properties, "total_memory", 0)),
    )


def _amdgpu_driver(module: Path) -> str | None:
    """AMD's own packages give the module a version; the kernel's built-in driver has none."""
    return (_read(module / "version") or "built in") if module.is_dir() else None


def _device_nodes(dev: Path) -> dict[str, str]:
    render_nodes = sorted((dev / "dri").glob("renderD*")) or [dev / "dri/renderD128"]
    return {str(node): _access(node) for node in (dev / "kfd", *render_nodes)}


def _access(node: Path) -> str:
    if not node.exists():
        return "absent"
    return "ok" if os.access(node, os.R_OK | os.W_OK) else "no permission"


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
