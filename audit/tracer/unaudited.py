"""Which ops are no cases, and why: what has no kernel on a device, no meaning alone, or no code in the trace."""

from __future__ import annotations

from collections.abc import Mapping

import torch

COLLECTIVE = "collective: needs the other ranks"
#: By the beginning of the qualified overload.
_REASONS: Mapping[tuple[str, ...], str] = {
    ("profiler::", "prim::"): "annotation for profilers: computes nothing",
    # nn.LSTM and its like pack their weights for the GPU that they were traced on; the numbers do not change.
    (
        "aten::_cudnn_rnn_flatten_weight",
        "aten::_cudnn_init_dropout_state",
    ): "vendor's packing of weights: moves memory, and belongs to the RNN call that follows",
    (
        "c10d::",
        "_c10d_functional::",
        "_c10d_functional_autograd::",
        "_dtensor::",
        "symm_mem::",
    ): COLLECTIVE,
    ("aten::from_file",): "opens a file: it depends on no device",
    ("prims::",): "primitive of torch's own decompositions: the aten ops that it calls are audited",
}
META = "meta tensor: it has no values and runs no kernel"
FAKE = "fake tensor: shapes alone, runs no kernel"
ON_HOST = "ran on the CPU in the program"
#: Reasons (their beginnings) for which a device has nothing to do.
_IDLE = ("annotation for profilers", "opens a file", META, FAKE, ON_HOST)
FOREIGN = "not an aten op: it exists where its library was loaded, and has no reference"
CUSTOM = "custom op: its code is not in the trace; the ops that it calls are audited where they pass the dispatcher"
HIGHER_ORDER = "higher-order op: run eagerly, the ops of its body are audited; a kernel compiled from it is not"


def qualified_name(op: torch._ops.OpOverload) -> str:
    """``aten::mm.default``."""
    packet, overload = op.name(), op._overloadname
    return packet if packet.endswith(f".{overload}") else f"{packet}.{overload}"


def reason_for(op: torch._ops.OpOverload) -> str:
    """Why calls of this op are no cases, or an empty string."""
    reason = reason_for_name(qualified_name(op))
    return CUSTOM if reason == FOREIGN and is_python_op(op) else reason


def reason_for_name(name: str) -> str:
    """The same by the qualified overload alone, where the op itself may not be here."""
    for beginnings, reason in _REASONS.items():
        if name.startswith(beginnings):
            return reason
    return "" if name.startswith("aten::") else FOREIGN


def computes(reason: str) -> bool:
    """Whether a device would have had something to do."""
    return not reason.startswith(_IDLE)


def is_python_op(op: torch._ops.OpOverload) -> bool:
    """Whether the op's kernel is Python of the program's (``torch.library``), so that the tracer can look inside.

    A C++ kernel is left alone: many ask whether a dispatch mode is there, and take another path under one.
    """
    name = op.name()
    if name.startswith("aten::"):
        return False
    if name in _defined_by_decorator():
        return True
    space, _, base = name.partition("::")
    registered: set[str] = getattr(torch.library, "_impls", set())
    return any(f"{space}/{base}/{key}" in registered for key in ("CPU", "CUDA", "CompositeExplicitAutograd"))


def _defined_by_decorator() -> Mapping[str, object]:
    try:
        from torch._library.custom_ops import OPDEFS
    except ImportError:  # private: gone or moved in another torch
        return {}
    return OPDEFS
