"""What ``torch.compile`` and TorchScript wrap: run op by op while a program is recorded, and said.

A dispatch mode sees nothing of a compiled region. ``torch.compiler.set_stance("force_eager")`` runs it as written;
torch's own uses of ``torch.compile``, inside higher-order ops, need the compiler and keep it (without it the backward
of ``torch.cond`` raises, torch 2.13).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import wraps
from typing import Any

import torch
import torch._dynamo.eval_frame
import torch.export
from torch.jit._script import RecursiveScriptModule

COMPILED = "traced eagerly: the kernels that Inductor would generate are not audited"
SCRIPTED = "TorchScript, run with its fuser off: groups that a GPU would fuse are audited op by op"
Namer = Callable[[str, str], None]
#: Modules of torch that compile for a purpose of their own, while the program runs them.
_OWN_USERS = ("torch._higher_order_ops.", "torch.nn.attention.flex_attention")


class CompiledRegions:
    """From ``install`` to ``remove`` compiled regions run eagerly; ``name`` is told of each that is made or entered.

    ``torch.export`` runs within ``exporting()``.
    """

    def __init__(self, name: Namer, exporting: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._name = name
        self._exporting = exporting
        self._installed = ExitStack()
        self._own = threading.local()

    def install(self) -> None:
        enter = self._installed.enter_context
        enter(replaced(torch, "compile", self._compile))
        enter(replaced(torch.export, "export", self._export))
        # Private, and called each time that a compiled region is entered; without it the stance alone does the work.
        enter(replaced(torch._dynamo.eval_frame, "_callback_from_stance", self._callback))
        for private in ("_jit_script_compile", "_create_function_from_trace"):
            enter(replaced(torch._C, private, self._scripted))
        enter(replaced(RecursiveScriptModule, "_construct", self._constructed))
        enter(_unfused())
        enter(torch.compiler.set_stance("force_eager"))

    def remove(self) -> None:
        self._installed.close()

    def _compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:
            compiled = original(*args, **kwargs)
            own = sys._getframe(1).f_globals.get("__name__", "").startswith(_OWN_USERS)
            return self._with_compiler(compiled) if own else compiled

        return compile

    def _export(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def export(*args: Any, **kwargs: Any) -> Any:
            with self._exporting():
                return original(*args, **kwargs)

        return export

    def _with_compiler(self, compiled: Callable[..., Any]) -> Callable[..., Any]:
        """``compiled``, for which the stance does not hold."""

        @wraps(compiled)
        def run(*args: Any, **kwargs: Any) -> Any:
            before = getattr(self._own, "within", False)
            self._own.within = True
            try:
                return compiled(*args, **kwargs)
            finally:
                self._own.within = before

        return run

    def _callback(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def callback_from_stance(callback: Any) -> Any:
            if callback is None:
                return None  # `disable`, which guards every dispatch to a mode: often, so as cheap as can be
            if callback is False:
                return original(callback)
            if getattr(self._own, "within", False) or torch.compiler.is_exporting():
                return callback
            self._name("torch.compile", COMPILED)
            return None  # eager, whatever stance the program itself has set

        return callback_from_stance

    def _scripted(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_script(*args: Any, **kwargs: Any) -> Any:
            self._name("TorchScript", SCRIPTED)
            return original(*args, **kwargs)

        return compile_script

    def _constructed(self, original: Callable[..., Any]) -> Any:
        return staticmethod(self._scripted(original))


@contextmanager
def replaced(owner: Any, name: str, replacement: Callable[[Callable[..., Any]], Any]) -> Iterator[None]:
    """Puts ``replacement(original)`` in the place of ``owner.name``, where there is one."""
    if not hasattr(owner, name):
        yield
        return
    original = vars(owner).get(name, getattr(owner, name))  # a staticmethod goes back as what it was
    setattr(owner, name, replacement(getattr(owner, name)))
    try:
        yield
    finally:
        setattr(owner, name, original)


@contextmanager
def _unfused() -> Iterator[None]:
    """TorchScript without its fuser: a fused group is one kernel, and no op of it would be seen."""
    if not hasattr(torch._C, "_jit_set_texpr_fuser_enabled"):
        yield
        return
    before = torch._C._jit_texpr_fuser_enabled()
    torch._C._jit_set_texpr_fuser_enabled(False)
    try:
        yield
    finally:
        torch._C._jit_set_texpr_fuser_enabled(before)
