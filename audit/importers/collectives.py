"""What a collective moved, as the profiler writes it beside its kernel: bytes, and the bytes of its slowest link.

Bus bandwidth is that of nccl-tests (doc/PERFORMANCE.md): the bytes of the message by a factor that makes the number one
of the hardware, whatever the collective and the number of ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Bytes of an element by torch's names of dtypes.
_ITEM_BYTES: Mapping[str, int] = {
    "Byte": 1, "Char": 1, "Bool": 1, "Half": 2, "BFloat16": 2, "Short": 2, "Int": 4, "Float": 4, "Long": 8, "Double": 8,
    "Float8_e4m3fn": 1, "Float8_e4m3fnuz": 1, "Float8_e5m2": 1, "Float8_e5m2fnuz": 1,
}  # fmt: skip
#: Times (n - 1) / n of the message; a broadcast, a reduction to one rank, sending and receiving pass it once.
_SHARED: Mapping[str, int] = {
    "allreduce": 2, "allgather": 1, "_allgather_base": 1, "all_gather_into_tensor_coalesced": 1, "reduce_scatter": 1,
    "_reduce_scatter_base": 1, "reduce_scatter_tensor_coalesced": 1, "all_to_all": 1, "all_to_allv": 1,
    "alltoall_base": 1,
}  # fmt: skip
_MOST = 1 << 60


@dataclass(frozen=True)
class Message:
    """``nbytes`` of the larger side, and those that passed the bus."""

    nbytes: int
    bus_bytes: float


def message_of(details: Mapping[str, Any]) -> Message | None:
    """None where the profiler did not say how much it was, or of what."""
    name, n_ranks, dtype = details.get("Collective name"), details.get("Group size"), details.get("dtype")
    counts = [details.get("In msg nelems"), details.get("Out msg nelems")]
    known = [number for number in counts if type(number) is int and 0 <= number < _MOST]
    if not isinstance(name, str) or not isinstance(dtype, str) or dtype not in _ITEM_BYTES or not known:
        return None
    nbytes = max(known) * _ITEM_BYTES[dtype]
    if name not in _SHARED:
        return Message(nbytes, float(nbytes))
    if type(n_ranks) is not int or not 0 < n_ranks < _MOST:
        return None
    return Message(nbytes, _SHARED[name] * nbytes * (n_ranks - 1) / n_ranks)
