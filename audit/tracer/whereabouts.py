"""Where a call comes from: the ``nn.Module`` path and the source line, for forward and backward.

Attribution is best effort and never asserts: recomputation, compiled wrappers and hooks break every stack discipline.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
import torch.autograd.graph
import torch.utils.checkpoint
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

_TORCH_FOLDER = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_AUDIT_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TRANSFORMS_FOLDER = os.path.join(_TORCH_FOLDER, "_functorch", "")
_CHECKPOINT_FILE = torch.utils.checkpoint.__file__
#: The Python frame that runs the engine; None in a torch that has it elsewhere, where the whole stack is searched.
_ENGINE: CodeType | None = getattr(getattr(torch.autograd.graph, "_engine_run_backward", None), "__code__", None)
#: How far up the stack a source line is looked for; deep enough for autograd wrappers within transformers models.
_MAX_FRAMES = 64


class ModuleStack:
    """The modules whose forward is running on one thread."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._by_id: dict[int, str] = {}
        self._root: weakref.ref[torch.nn.Module] | None = None

    @property
    def path(self) -> str:
        return self._names[-1] if self._names else ""

    @property
    def depth(self) -> int:
        return len(self._names)

    def enter(self, module: torch.nn.Module) -> None:
        if not self._names:
            self._name_modules(module)
        name = self._by_id.get(id(module))
        self._names.append(name if name is not None else f"{self.path}.{type(module).__name__}".lstrip("."))

    def leave(self) -> None:
        if self._names:
            self._names.pop()

    def _name_modules(self, root: torch.nn.Module) -> None:
        if self._root is not None and self._root() is root:
            return
        self._root = weakref.ref(root)
        top = type(root).__name__
        self._by_id = {id(module): f"{top}.{name}" if name else top for name, module in root.named_modules()}


class ModuleStacks:
    """Every thread's stack, kept by global hooks that return nothing and so change nothing.

    Global hooks are used because the instance hooks of a module switch off the encoder fast path. ``on_root_call`` is
    told of the outermost module's calls on the thread that installed the hooks, and on others while that one runs no
    module (a model that is served by a thread, but not the replicas of one).
    """

    def __init__(self) -> None:
        self.on_root_call: Callable[[torch.nn.Module], None] | None = None
        self._stacks = threading.local()
        self._first = ModuleStack()
        self._handles: list[Any] = []

    def here(self) -> ModuleStack:
        """The stack of the calling thread."""
        stack = getattr(self._stacks, "stack", None)
        if stack is None:
            stack = self._stacks.stack = ModuleStack()
        return stack

    def install(self) -> None:
        self._first = self._stacks.stack = ModuleStack()
        self._hook()

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def _hook(self) -> None:
        self._handles = [
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        ]

    @contextmanager
    def away(self) -> Iterator[None]:
        """Without the hooks, for what looks at a module's hooks or calls it for its shapes alone (``torch.export``)."""
        self.remove()
        try:
            yield
        finally:
            self._hook()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        stack = self.here()
        if not stack.depth and not self._first.depth and self.on_root_call is not None:
            self.on_root_call(module)
        stack.enter(module)

    def _leave(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self.here().leave()


class ForwardPlaces:
    """Maps autograd sequence numbers to the place of the forward call that made the node.

    One entry each time the place changes; a node's place is that of the last entry at or before its number.
    """

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._places: list[tuple[str, str]] = []

    def note(self, number: int, place: tuple[str, str]) -> None:
        if self._places and self._places[-1] == place:
            return
        if self._numbers and number < self._numbers[-1]:
            return  # another thread's counter: numbers are per thread, and only rising ones can be searched
        self._numbers.append(number)
        self._places.append(place)

    def find(self, number: int) -> tuple[str, str] | None:
        index = bisect_right(self._numbers, number) - 1
        return self._places[index] if index >= 0 else None


class SourceLines:
    """Finds the innermost line outside torch and this package: the model's code, in a library or the user's."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}  # an empty one where the code is inside
        self._folder = os.getcwd()  # the program may leave it, and delete the one that it is in

    def current(self) -> str:
        frame: FrameType | None = sys._getframe(2)
        for _ in range(_MAX_FRAMES):
            if frame is None:
                return ""
            name = frame.f_code.co_filename  # not the code object, whose hash goes over all of its instructions
            file = self._files.get(name)
            if file is None:
                file = self._files[name] = _shorten(name, self._folder) if _is_outside(name) else ""
            if file:
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def recomputing(self) -> bool:
        """Whether the call comes from activation checkpointing, between it and the backward that runs it."""
        frame: FrameType | None = sys._getframe(3)
        while frame is not None and frame.f_code is not _ENGINE:
            if frame.f_code.co_filename == _CHECKPOINT_FILE:
                return True
            frame = frame.f_back
        return False


def within_transform() -> bool:
    """Whether the call comes from a transform of ``torch.func``; below it the transforms themselves are gone."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_TRANSFORMS_FOLDER):
            return True
        frame = frame.f_back
    return False


def _is_outside(filename: str) -> bool:
    if filename.startswith("<"):
        return False  # generated code, import machinery
    return not filename.startswith((_TORCH_FOLDER, _AUDIT_FOLDER)) and os.sep + "contextlib.py" not in filename


def _shorten(filename: str, folder: str) -> str:
    """A path that tells nothing about the machine: from site-packages on, else relative to the working folder."""
    marker = f"{os.sep}site-packages{os.sep}"
    if marker in filename:
        return filename.rsplit(marker, 1)[1]
    relative = os.path.relpath(os.path.join(folder, filename), folder)
    return os.path.basename(filename) if relative.startswith("..") else relative
