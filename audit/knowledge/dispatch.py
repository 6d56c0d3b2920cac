"""Which aten ops have a kernel under the CUDA key, which ROCm builds share; derived from native_functions.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from audit.knowledge.tables import rows


@dataclass(frozen=True)
class Dispatch:
    """``kind``: ``cuda`` its own kernel, ``composite`` built of other ops, ``other layout`` sparse, nested or quantised
    tensors only, ``none`` no GPU kernel. ``arguments`` is the schema's text between the brackets, empty where torch
    generates the op. ``torch_version`` is the release the table was made from."""

    op: str
    kind: str
    kernel: str
    arguments: str
    torch_version: str
    source: str


@cache
def load_dispatch() -> Mapping[str, Dispatch]:
    """By qualified overload, ``aten::add.Tensor``."""
    return {row["op"]: Dispatch(**row) for row in rows("dispatch.csv")}


#: Composites of other ops that a tracer keeps whole, since what they call depends on the device.
WHOLE_COMPOSITES = frozenset(
    f"aten::{name}"
    for name in """
    scaled_dot_product_attention batch_norm lstm gru rnn_tanh rnn_relu lstm_cell gru_cell ctc_loss dropout rms_norm
    grid_sampler one_hot layer_norm group_norm embedding_bag
    """.split()
)


@cache
def _overloads() -> Mapping[str, tuple[Dispatch, ...]]:
    """By the name without its overload. Left out are those that write into an argument they are given, and those that
    give another dtype, which torch has had since 2.8."""
    found: dict[str, list[Dispatch]] = {}
    for op, entry in load_dispatch().items():
        base, _, overload = op.partition(".")
        if not overload.endswith(("out", "dtype")):
            found.setdefault(base, []).append(entry)
    return {base: tuple(entries) for base, entries in found.items()}


def qualified(base: str) -> str:
    """``aten::bmm.default`` of ``aten::bmm``; an op with several overloads stays as it is, and one that is unknown."""
    entries = _overloads().get(base, ())
    return entries[0].op if len(entries) == 1 else base


def is_taken_apart(base: str) -> bool:
    """Whether every overload is only made of other ops, which a trace holds in its place: ``aten::linear``."""
    entries = _overloads().get(base, ())
    return (
        bool(entries)
        and base not in WHOLE_COMPOSITES
        and all(entry.kernel == "CompositeImplicitAutograd" for entry in entries)
    )
