"""Attributes of torch that are replaced for a while."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from torch.jit._builtins import _get_builtin_table


class Patches:
    """Replacements that ``stack`` takes back when it is closed."""

    def __init__(self, stack: ExitStack) -> None:
        self.stack = stack

    def set(self, owner: Any, name: str, value: Any) -> None:
        missing = object()
        old = owner.__dict__.get(name, missing)
        setattr(owner, name, value)
        if old is missing:
            self.stack.callback(delattr, owner, name)
        else:
            self.stack.callback(setattr, owner, name, old)

    def wrap(self, owner: Any, name: str, wrapper: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        """Replaces a function by ``wrapper(function)``; one that this torch lacks is passed over."""
        function = getattr(owner, name, None)
        if function is not None:
            replacement = wrapper(function)
            self.set(owner, name, replacement)
            self._known_to_torchscript(function, replacement)

    def _known_to_torchscript(self, function: Any, replacement: Any) -> None:
        """TorchScript knows torch's functions by identity; forward-mode autograd scripts its formulas, too."""
        table = _get_builtin_table()
        if id(function) in table:
            table[id(replacement)] = table[id(function)]
            self.stack.callback(table.pop, id(replacement))
