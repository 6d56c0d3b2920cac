"""Which aten ops have a kernel under the CUDA key, which ROCm builds share; derived from native_functions.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from audit.knowledge.tables import rows


@dataclass(frozen=True)
class Dispatch:
    """``kind``: ``cuda`` its own kernel, ``composite`` built of other ops, ``other layout`` sparse, nested or quantised
    tensors only, ``none`` no GPU kernel. ``torch_version`` is the release the table was made from."""

    op: str
    kind: str
    kernel: str
    torch_version: str
    source: str


@cache
def load_dispatch() -> Mapping[str, Dispatch]:
    """By qualified overload, ``aten::add.Tensor``."""
    return {
        row["op"]: Dispatch(row["op"], row["kind"], row["kernel"], row["torch_version"], row["source"])
        for row in rows("dispatch.csv")
    }
