"""Higher-order ops (``torch.cond``, ``flex_attention``) run unchanged, and the ops of their body are seen.

Such an op arrives at the dispatch mode with the mode off, and calls the functions among its arguments; these get the
mode back. Where it computes something itself, its whole kernel does.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch._C import DispatchKey

#: Kernels that compute with aten ops around the functions that they are given.
_COMPUTING = ("flex_attention", "flex_attention_backward")


def run_higher_order(mode: AbstractContextManager[Any], op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs ``op`` as it would run without ``mode``, which sees what the op's body does."""
    compute_keys = getattr(torch._ops, "_compute_keyset", None)
    if compute_keys is None or not hasattr(op, "dispatch"):  # private: another torch has it elsewhere
        return op(*args, **kwargs)
    key = compute_keys(args, kwargs, op.non_fallthrough_keys).highestPriorityTypeId()
    if key == DispatchKey.Python:
        return op(*args, **kwargs)  # another mode's turn, or a subclass's
    if op.name() in _COMPUTING or any(isinstance(arg, torch._ops.OpOverload) for arg in args):
        with mode:
            return op.dispatch(key, *args, **kwargs)
    # Most kernels assert that no mode is on; their bodies do not.
    return op.dispatch(key, *[_seen(arg, mode) for arg in args], **{k: _seen(v, mode) for k, v in kwargs.items()})


def _seen(argument: Any, mode: AbstractContextManager[Any]) -> Any:
    """A function that runs under ``mode``; any other argument as it is."""
    if not callable(argument) or isinstance(argument, (torch.Tensor, torch._ops.OperatorBase, type)):
        return argument
    body: Callable[..., Any] = argument

    def seen(*args: Any, **kwargs: Any) -> Any:
        with mode:
            return body(*args, **kwargs)

    return seen
