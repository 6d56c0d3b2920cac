"""Which devices a name stands for, and what pins a process to one of them."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from audit.device.gpu import flavour
from audit.device.hostmemory import variables_for_filling
from audit.device.library_state import SET_BY_AUDIT
from audit.errors import UsageError

#: Where MIOpen keeps what it found out about shapes on this machine, and the kernels that it compiled, by the variables
#: that move them. An audit neither reads nor fills the user's.
_MIOPEN_FOLDERS = {"MIOPEN_USER_DB_PATH": "miopen-db", "MIOPEN_CUSTOM_CACHE_DIR": "miopen-cache"}
#: New MIOpen tries its naive kernels on a stream beside and leaves slow ones running there, under the timed runs
#: (https://github.com/ROCm/rocm-libraries/pull/9513); 0 tries them to their end.
_MIOPEN_SETTINGS = {"MIOPEN_NAIVE_TIMEOUT": "0"}


@dataclass(frozen=True)
class Place:
    """One device for one child process: ``device`` as ``open_device`` takes it there, variables to start it with."""

    device: str
    environment: Mapping[str, str] = field(default_factory=dict)


def places(name: str) -> tuple[Place, ...]:
    """Every device that ``name`` stands for: all visible GPUs for ``cuda``, one for ``cuda:1``, two for ``sim,sim``.

    A child sees no GPU but its own, so that nothing of it can run on another one. Raises UsageError (``no-device``)
    where a GPU of that number is not visible.
    """
    return tuple(place for part in parts(name) for place in _places_of(part))


def parts(name: str) -> list[str]:
    """The names in a list of devices; a fault file may have commas in its name."""
    return re.split(r",(?=(?:hip|cuda|sim|cpu|none|auto)(?:[:,]|$))", name)


def gpu_index(name: str) -> int | None:
    """The number in ``cuda:1``, None where there is none."""
    flavour_name, _, number = name.partition(":")
    return int(number) if flavour_name in ("hip", "cuda") and number.isdecimal() else None


def _places_of(name: str) -> tuple[Place, ...]:
    kind = name.partition(":")[0]
    if kind not in ("hip", "cuda"):
        return (Place(name, variables_for_filling()),)
    n_visible = torch.cuda.device_count()
    index = gpu_index(name)
    if index is not None and index >= n_visible:
        raise UsageError(f"there is no {name}: {n_visible} GPUs are visible, counted from 0", "no-device")
    if n_visible < 2:
        return (Place(kind),)
    wanted = range(n_visible) if index is None else (index,)
    return tuple(Place(kind, {_variable(): _visible_name(number)}) for number in wanted)


def with_library_files(place: Place, folder: Path) -> Place:
    """``place`` with the files of the GPU libraries: MIOpen's own in ``folder``, TunableOp's where the program has it.

    A variable that the user has set stays as it is. The processes of one place share the folder, so that one which
    replaces another need not search again.
    """
    if place.device.partition(":")[0] not in ("hip", "cuda", "auto"):
        return place
    place = dataclasses.replace(place, environment={**place.environment, **_tunable_file()})
    return _with_private_databases(place, folder) if flavour() == "hip" else place


def _tunable_file() -> dict[str, str]:
    """TunableOp's results lie in the program's folder, which is not that of the children."""
    if os.environ.get("PYTORCH_TUNABLEOP_ENABLED") != "1":
        return {}
    name = os.environ.get("PYTORCH_TUNABLEOP_FILENAME", "tunableop_results.csv")
    return {"PYTORCH_TUNABLEOP_FILENAME": os.path.abspath(name)}


def _with_private_databases(place: Place, folder: Path) -> Place:
    wanted = {name: str(folder / inside) for name, inside in _MIOPEN_FOLDERS.items()} | _MIOPEN_SETTINGS
    chosen = {name: value for name, value in wanted.items() if name not in os.environ}
    for name in _MIOPEN_FOLDERS:
        if name in chosen:
            Path(chosen[name]).mkdir(exist_ok=True)
    return dataclasses.replace(place, environment={**place.environment, **chosen, SET_BY_AUDIT: " ".join(chosen)})


def _variable() -> str:
    """The variable that hides GPUs: the one that is in use here, since it also gives them their numbers."""
    if flavour() == "hip" and ("HIP_VISIBLE_DEVICES" in os.environ or "CUDA_VISIBLE_DEVICES" not in os.environ):
        return "HIP_VISIBLE_DEVICES"
    return "CUDA_VISIBLE_DEVICES"


def _visible_name(number: int) -> str:
    """How the variable names the GPU that torch gives this number: it may list numbers or UUIDs in any order."""
    listed = [entry for entry in os.environ.get(_variable(), "").split(",") if entry.strip()]
    return listed[number].strip() if listed else str(number)
