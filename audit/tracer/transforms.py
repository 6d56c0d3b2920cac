"""Composites under ``torch.func.grad``: what is recorded is the tensors below the wrappers of the transform.

Under ``vmap`` and forward mode a composite is another computation than the one that a case could repeat: its parts are
recorded, or named where they are one device's own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._C import _functorch
from torch._functorch import pyfunctorch

_GRAD = _functorch.TransformType.Grad


def is_transformed() -> bool:
    """Whether the calling thread is within a transform of ``torch.func``."""
    return _functorch.peek_interpreter_stack() is not None


def is_grad_alone() -> bool:
    """Whether all transforms around the call only differentiate."""
    return all(level.key() == _GRAD for level in _functorch.get_interpreter_stack() or ())


def base_of(value: Any, wanting: set[int]) -> Any:
    """``value`` without the wrappers of transforms; ids of tensors that some level differentiates go to ``wanting``."""
    if isinstance(value, (list, tuple)):
        return [base_of(item, wanting) for item in value]
    if not isinstance(value, torch.Tensor) or not _functorch.is_functorch_wrapped_tensor(value):
        return value
    requires_grad = False
    while _functorch.is_functorch_wrapped_tensor(value):
        requires_grad = requires_grad or value.requires_grad
        value = _functorch.get_unwrapped(value)
    if requires_grad:
        wanting.add(id(value))
    return value


def unbatched(gradient: torch.Tensor) -> torch.Tensor | None:
    """A gradient without its wrappers, None where ``vmap`` runs many backwards at once."""
    while _functorch.is_functorch_wrapped_tensor(gradient):
        if _functorch.is_batchedtensor(gradient):
            return None
        gradient = _functorch.get_unwrapped(gradient)
    return gradient


def without_transforms() -> AbstractContextManager[Any]:
    """Lets ops on tensors without wrappers give such tensors."""
    return pyfunctorch.temporarily_clear_interpreter_stack() if is_transformed() else nullcontext()
