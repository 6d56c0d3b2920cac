"""How much a collective passes among the ranks, from its arguments: it has no case, since it needs the other ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

#: They wait, or wrap what is under way; the tensor that they are given was passed by another call.
_PASS_NOTHING = frozenset({"barrier", "monitored_barrier_", "wait_tensor", "_wrap_tensor_autograd"})


@dataclass(frozen=True)
class Message:
    """Bytes of the larger side, given or received, and how many ranks take part (0: not known)."""

    nbytes: int
    n_ranks: int


def message_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Message | None:
    """None for what passes nothing. The larger side is what one rank holds of it, as nccl-tests count."""
    name = func._schema.name.rpartition("::")[2]
    if name in _PASS_NOTHING:
        return None
    given = dict(zip((argument.name for argument in func._schema.arguments), args, strict=False)) | kwargs
    nbytes = max((sum(_sizes(value)) for value in given.values()), default=0)
    n_ranks = _n_ranks(given)
    if name.startswith("all_gather_into_tensor") and isinstance(given.get("group_size"), int):
        nbytes *= given["group_size"]  # what it gathers is its result
    return Message(nbytes, n_ranks)


def _sizes(value: Any) -> Iterator[int]:
    if isinstance(value, torch.Tensor):
        yield value.numel() * value.element_size()
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _sizes(item)


def _n_ranks(given: dict[str, Any]) -> int:
    """Of the group by its size, itself or its name."""
    if isinstance(size := given.get("group_size"), int):
        return size
    distributed: Any = torch.distributed
    try:
        if isinstance(name := given.get("group_name"), str):
            return int(distributed.distributed_c10d._resolve_process_group(name).size())
        return int(distributed.ProcessGroup.unbox(given["process_group"]).size())
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError):  # private, and a group may be gone
        return 0
