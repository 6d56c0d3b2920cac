"""Which devices a name stands for, and what pins a process to one of them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from audit.device.gpu import flavour
from audit.errors import UsageError


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
        return (Place(name),)
    n_visible = torch.cuda.device_count()
    index = gpu_index(name)
    if index is not None and index >= n_visible:
        raise UsageError(f"there is no {name}: {n_visible} GPUs are visible, counted from 0", "no-device")
    if n_visible < 2:
        return (Place(kind),)
    wanted = range(n_visible) if index is None else (index,)
    return tuple(Place(kind, {_variable(): _visible_name(number)}) for number in wanted)


def _variable() -> str:
    """The variable that hides GPUs: the one that is in use here, since it also gives them their numbers."""
    if flavour() == "hip" and ("HIP_VISIBLE_DEVICES" in os.environ or "CUDA_VISIBLE_DEVICES" not in os.environ):
        return "HIP_VISIBLE_DEVICES"
    return "CUDA_VISIBLE_DEVICES"


def _visible_name(number: int) -> str:
    """How the variable names the GPU that torch gives this number: it may list numbers or UUIDs in any order."""
    listed = [entry for entry in os.environ.get(_variable(), "").split(",") if entry.strip()]
    return listed[number].strip() if listed else str(number)
