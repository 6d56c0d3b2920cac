"""Composed ops on the CPU with the factors of their matrix products changed, in the forward and in the backward.

A library runs such an op as one call, and takes its matrix units for the products inside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

#: Whether a product keeps its digits, by its left factor and the most rows that one not transposed had so far.
Keeps = Callable[[torch.Tensor, int], bool]

#: Which argument is the left factor; the right one follows it.
_LEFT = {torch.ops.aten.mm.default: 0, torch.ops.aten.addmm.default: 1}


class ChangedProducts(TorchDispatchMode):
    """While it is on, both factors of each product in double precision are changed, but for those that ``keeps``."""

    def __init__(self, change: Callable[[torch.Tensor], torch.Tensor], keeps: Keeps) -> None:
        super().__init__()
        self._change = change
        self._keeps = keeps
        self._most_rows = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        first = _LEFT.get(func)
        if first is not None and args[first].dtype == torch.float64:
            left, right = args[first : first + 2]
            if left.stride(-1) == 1:
                self._most_rows = max(self._most_rows, left.shape[0])
            if not self._keeps(left, self._most_rows):
                args = (*args[:first], self._change(left), self._change(right), *args[first + 2 :])
        return func(*args, **(kwargs or {}))


def one_row(left: torch.Tensor, most_rows: int) -> bool:
    """A step of one sequence: a vector times a matrix needs no matrix unit."""
    return left.shape[0] == 1


def one_step(left: torch.Tensor, most_rows: int) -> bool:
    """A step of the recurrence, in a kernel that stays for all of them; not the inputs of all steps together, which
    come first, and not the gradient of a weight, whose left factor is transposed."""
    return left.shape[0] < most_rows and left.stride(-1) == 1
