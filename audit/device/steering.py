"""Reads and sets the global settings of torch that choose kernels (``audit.kernel_settings``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any, TypeAlias

import torch

from audit.kernel_settings import SETTINGS, KernelSetting, setting

#: Settings in force that differ from torch's defaults: (name, value) in the order of the table.
InForce: TypeAlias = "tuple[tuple[str, bool | str], ...]"


def in_force(op: str) -> InForce:
    """What steers ``op`` (a qualified overload) at this moment and is not torch's default. Some 0.2 us."""
    found: InForce = ()
    for name, default, read in _readers(op):
        value = read()
        if value != default:
            found = (*found, (name, value))
    return found


@contextmanager
def steered(settings: InForce) -> Iterator[tuple[str, ...]]:
    """Sets them for a while; gives the names of those that this torch or this version of the audit lacks."""
    unknown: list[str] = []
    with ExitStack() as stack:
        for name, value in settings:
            known = setting(name)
            if known is None or type(value) is not type(known.default) or name not in _READ:
                unknown.append(name)
                continue
            stack.callback(_write, known, _READ[name]())
            _write(known, value)
        yield tuple(unknown)


def refusal(settings: InForce) -> str:
    """Why they cannot be set here (this torch lacks one, or was built without the library), or an empty string."""
    try:
        with steered(settings) as unknown:
            return f"this torch has no {', '.join(unknown)}" if unknown else ""
    except RuntimeError as error:
        return str(error).partition("\n")[0]


def _write(known: KernelSetting, value: Any) -> None:
    owner, last = _owner(known.name)
    if known.is_call:
        getattr(owner, last)(value)
    else:
        setattr(owner, last, value)


def _owner(name: str) -> tuple[Any, str]:
    """``torch.backends.cudnn.enabled`` to the module ``torch.backends.cudnn`` and ``enabled``."""
    _, *path, last = name.split(".")
    owner: Any = torch
    for part in path:
        owner = getattr(owner, part)
    return owner, last


@cache
def _readers(op: str) -> tuple[tuple[str, bool | str, Callable[[], bool | str]], ...]:
    return tuple(
        (item.name, item.default, _READ[item.name])
        for item in SETTINGS
        if item.name in _READ and re.match(item.ops, op)
    )


def _precision(op: str) -> Callable[[], str]:
    read_precision = torch._C._get_fp32_precision_getter

    def read() -> str:
        value = read_precision("cuda", op)
        return "ieee" if value == "none" else value  # what the libraries take where nothing is said

    return read


def _reduced(name: str) -> Callable[[], bool]:
    read = getattr(torch._C, name)

    def first() -> bool:
        value = read()  # with split-k beside it since torch 2.10
        return bool(value[0] if isinstance(value, tuple) else value)

    return first


def _available() -> dict[str, Callable[[], bool | str]]:
    """The C functions behind the attributes, which cost a tenth of them; without those that this torch lacks."""
    functions = {
        "torch.backends.cuda.enable_flash_sdp": "_get_flash_sdp_enabled",
        "torch.backends.cuda.enable_mem_efficient_sdp": "_get_mem_efficient_sdp_enabled",
        "torch.backends.cuda.enable_math_sdp": "_get_math_sdp_enabled",
        "torch.backends.cuda.enable_cudnn_sdp": "_get_cudnn_sdp_enabled",
        "torch.backends.cudnn.enabled": "_get_cudnn_enabled",
        "torch.backends.cudnn.benchmark": "_get_cudnn_benchmark",
        "torch.backends.cudnn.deterministic": "_get_cudnn_deterministic",
        "torch.use_deterministic_algorithms": "_get_deterministic_algorithms",
    }
    reduced = {
        f"torch.backends.cuda.matmul.allow_{dtype}_reduced_precision_reduction": (
            f"_get_cublas_allow_{dtype}_reduced_precision_reduction"
        )
        for dtype in ("fp16", "bf16")
    }
    found: dict[str, Callable[[], bool | str]] = {
        name: getattr(torch._C, function) for name, function in functions.items() if hasattr(torch._C, function)
    }
    found |= {name: _reduced(function) for name, function in reduced.items() if hasattr(torch._C, function)}
    if hasattr(torch._C, "_get_fp32_precision_getter"):
        found |= {
            "torch.backends.cuda.matmul.fp32_precision": _precision("matmul"),
            "torch.backends.cudnn.conv.fp32_precision": _precision("conv"),
            "torch.backends.cudnn.rnn.fp32_precision": _precision("rnn"),
        }
    # Torch's own values of what it prefers, which the same functions take back.
    libraries = {
        "torch.backends.cuda.preferred_blas_library": "_get_blas_preferred_backend",
        "torch.backends.cuda.preferred_linalg_library": "_get_linalg_preferred_backend",
        "torch.backends.cuda.preferred_rocm_fa_library": "_get_rocm_fa_preferred_backend",
    }
    found |= {name: getattr(torch._C, function) for name, function in libraries.items() if hasattr(torch._C, function)}
    return found


_READ = _available()
