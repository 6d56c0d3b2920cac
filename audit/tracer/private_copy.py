"""The private form of an ``.audit`` file that was recorded with names and values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import BinaryIO

import torch

from audit.codec import tensors_of
from audit.opset import write_opset
from audit.opset.file import Opset, check_values, open_opset
from audit.opset.tensors import DTYPES, Tensor, blocks_of_tensor
from audit.privacy.private_trace import made_private
from audit.schema import Case, TensorSpec, Trace, Values
from audit.tracer.values import described


def copy_private(path: Path, target: Path, names: Path) -> Trace:
    """Writes the private form of ``path`` to ``target`` and the map of its names to ``names``.

    A file that is private already is copied, and has no map. Raises UsageError, UnfinishedError.
    """
    opset = open_opset(path)
    check_values(opset)
    trace = made_private(_described(opset), names)
    write_opset(target, trace, None)
    return trace


def _described(opset: Opset) -> Trace:
    """The trace with the statistics of its stored values, which were not needed beside them."""
    if not opset.tensors:
        return opset.trace
    with opset.path.open("rb") as file:
        cases = tuple(_described_case(case, opset, file) for case in opset.trace.cases)
    return dataclasses.replace(opset.trace, cases=cases)


def _described_case(case: Case, opset: Opset, file: BinaryIO) -> Case:
    specs = tensors_of(case.args, case.kwargs, case.grads)
    values: dict[int, Values] = dict(case.values)
    for position, spec in enumerate(specs):
        tensor = opset.tensors.get(f"{case.key}/{position}")
        if tensor is not None and tensor.n_elements:
            values[position] = described(_operand(file, tensor, spec), values.get(position, Values()))
    return dataclasses.replace(case, values=values)


def _operand(file: BinaryIO, tensor: Tensor, spec: TensorSpec) -> torch.Tensor:
    """The operand as the op saw it, gaps of its storage left out."""
    content = bytearray().join(blocks_of_tensor(file, tensor))
    span = torch.frombuffer(content, dtype=getattr(torch, DTYPES[tensor.dtype][0]))
    return span.as_strided(spec.sizes, spec.strides)
