"""What form a tensor has: one that takes dispatch into its own hands, or one that is not strided."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


@cache
def desugars(cls: type) -> bool:
    """Whether tensors of this class handle dispatch themselves and lead to inner aten calls."""
    dispatch = getattr(cls, "__torch_dispatch__", None)
    return dispatch is not torch._C._disabled_torch_dispatch_impl and not issubclass(cls, torch.nn.Parameter)


def has_special_form(arguments: tuple[Any, ...] | list[Any]) -> bool:
    """Whether a tensor among the arguments is nested, sparse or quantised.

    For these some composites (``matmul`` of nested tensors) have kernels of their own, and the composite would fail.
    """
    return any(
        has_special_form(item)
        if isinstance(item, (tuple, list))
        else isinstance(item, torch.Tensor)
        and (item.is_nested or item.is_quantized or item.layout is not torch.strided)
        for item in arguments
    )
