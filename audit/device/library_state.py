"""What steers the GPU libraries of this process: tuning, searches, preferred libraries, precisions, versions.

Each fact is asked of torch by itself; one that this build cannot tell is left out.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePath
from typing import Any

import torch

#: In a device child's environment: the names of the variables that the audit has set there, separated by spaces.
SET_BY_AUDIT = "ROCM_AUDIT_SET"


def library_state(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """By names that a report may show; file names without their folders."""
    asked = {**_everywhere(), **(_on_hip(environ) if torch.version.hip else {})}
    return {name: text for name, ask in asked.items() if (text := _told(ask))}


def _everywhere() -> dict[str, Callable[[], Any]]:
    cudnn = torch.backends.cudnn
    return {
        "MIOpen" if torch.version.hip else "cuDNN": cudnn.version,
        "cudnn.benchmark": lambda: cudnn.benchmark,
        "cudnn.deterministic": lambda: cudnn.deterministic,
        "float32 products": torch.get_float32_matmul_precision,
        "preferred BLAS": lambda: _last(torch.backends.cuda.preferred_blas_library()),
        "preferred linalg": lambda: _last(torch.backends.cuda.preferred_linalg_library()),
        "TunableOp": _tunable_op,
    }


def _on_hip(environ: Mapping[str, str]) -> dict[str, Callable[[], Any]]:
    return {
        "preferred attention": lambda: _last(torch.backends.cuda.preferred_rocm_fa_library()),
        "MIOpen find mode": lambda: environ.get("MIOPEN_FIND_MODE", "not set"),
        "MIOpen immediate mode": lambda: torch.backends.miopen.immediate,
        "set by the audit": lambda: ", ".join(_set_by_audit(environ)),
    }


def _tunable_op() -> str:
    """``off``, ``on, looks results up``, ``on, tunes``; with the number of results that it has."""
    tunable: Any = torch.cuda.tunable
    if not tunable.is_enabled():
        return "off"
    does = "tunes" if tunable.tuning_is_enabled() else "looks results up"
    return f"on, {does}, {len(tunable.get_results())} results from {PurePath(tunable.get_filename()).name or 'no file'}"


def _set_by_audit(environ: Mapping[str, str]) -> Iterator[str]:
    for name in environ.get(SET_BY_AUDIT, "").split():
        value = environ.get(name, "")
        yield f"{name} (a private folder, empty at first)" if os.path.isabs(value) else f"{name}={value}"


def _last(value: object) -> str:
    """``Cublaslt`` of ``_BlasBackend.Cublaslt``."""
    return str(value).rpartition(".")[2]


def _told(ask: Callable[[], Any]) -> str:
    """A CPU build lacks the functions; some builds refuse to answer, or warn that they would not do as asked."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = ask()
    except (AttributeError, RuntimeError, AssertionError, ImportError):
        return ""
    return "" if answer is None else str(answer)
