"""Kernels that are launched past the dispatcher: Triton, NVRTC, CUDA graphs, AOTInductor; counted and named."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch

from audit.tracer.compiled import replaced

_TRITON = "launched past the dispatcher: it is not audited"
_GRAPH = "replayed unseen: the ops of its capture are audited where it was captured here"
_COMPILED = "compiled by the program: it is not audited"
_AHEAD = "compiled ahead of time: what it runs is not audited"
#: Module, class, method that launches. The interpreter stands for the GPU where TRITON_INTERPRET is set.
_TRITON_LAUNCHERS = (("triton.runtime.jit", "JITFunction"), ("triton.runtime.interpreter", "InterpretedFunction"))


class LaunchWatch:
    """From ``install`` to ``remove``, ``name`` is told of each launch; ``module`` gives the ``nn.Module`` path."""

    def __init__(self, name: Callable[[str, str], None], module: Callable[[], str]) -> None:
        self._name = name
        self._module = module
        self._installed = ExitStack()

    def install(self) -> None:
        for launcher in _triton_launchers():
            self._installed.enter_context(replaced(launcher, "run", self._counting(_triton_kernel, _TRITON)))
        if "replay" in vars(torch.cuda.CUDAGraph):
            graph = self._counting(lambda *_: "CUDA graph replay", _GRAPH)
            self._installed.enter_context(replaced(torch.cuda.CUDAGraph, "replay", graph))
        compiled = getattr(importlib.import_module("torch.cuda._utils"), "_CudaKernel", None)
        if compiled is not None:
            kernel = self._counting(lambda *_: "kernel of torch.cuda._compile_kernel", _COMPILED)
            self._installed.enter_context(replaced(compiled, "__call__", kernel))

        inductor = importlib.import_module("torch._inductor")
        if hasattr(inductor, "aoti_load_package"):
            package = self._counting(lambda *_: "AOTInductor package", _AHEAD)
            self._installed.enter_context(replaced(inductor, "aoti_load_package", package))

    def remove(self) -> None:
        self._installed.close()

    def _counting(
        self, describe: Callable[[Any, dict[str, Any]], str], reason: str
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
            @wraps(original)
            def launch(launcher: Any, *args: Any, **kwargs: Any) -> Any:
                if what := describe(launcher, kwargs):
                    module = self._module()
                    self._name(f"{what} in {module}" if module else what, reason)
                return original(launcher, *args, **kwargs)

            return launch

        return replacement


def _triton_kernel(launcher: Any, kwargs: dict[str, Any]) -> str:
    """``Triton kernel add``, or an empty string where it is only compiled."""
    if kwargs.get("warmup"):
        return ""
    return f"Triton kernel {getattr(getattr(launcher, 'fn', None), '__name__', '?')}"


def _triton_launchers() -> list[Any]:
    """The classes whose ``run`` launches; importing Triton is what torch's compiler does, too."""
    if importlib.util.find_spec("triton") is None:
        return []
    found = []
    for module, name in _TRITON_LAUNCHERS:
        try:
            found.append(getattr(importlib.import_module(module), name))
        except (ImportError, AttributeError, OSError):  # broken where it is installed: nothing can be launched
            continue
    return found
