"""Arguments that an op takes from the host even on a GPU: lengths of packed sequences, places to split at.

Where a program runs on a GPU they are seen to be on the CPU. Where it was traced on the CPU everything is, and this
table says which of its tensors would have stayed there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from audit.schema import Arg, TensorSpec

#: Op -> places of its arguments that must be on the CPU (checked in ATen/native/PackedSequence.cpp, RNN.cpp).
HOST_ARGUMENTS: Mapping[str, tuple[int, ...]] = {
    "aten::_pack_padded_sequence.default": (1,),
    "aten::_pack_padded_sequence_backward.default": (2,),
    "aten::_pad_packed_sequence.default": (1,),
    "aten::lstm.data": (1,),
    "aten::gru.data": (1,),
    "aten::rnn_tanh.data": (1,),
    "aten::rnn_relu.data": (1,),
    "aten::tensor_split.tensor_indices_or_sections": (1,),
}


def with_host_arguments(op: str, args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """The arguments with those of the table marked as staying on the host."""
    places = HOST_ARGUMENTS.get(op, ())
    return tuple(
        dataclasses.replace(arg, host=True) if place in places and isinstance(arg, TensorSpec) else arg
        for place, arg in enumerate(args)
    )
