"""A case's operands on the CPU, on the storages that were made for it: copies to be written, or views to be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from audit.codec import tensors_of
from audit.replay.inputs import elements_of, storages_of, torch_dtype
from audit.replay.noise import LOW_PRECISION, rounds_once
from audit.replay.spool import on_storage
from audit.schema import Case, TensorSpec

Operand = Callable[[int, TensorSpec], torch.Tensor]


def narrow_operands(case: Case, contents: Mapping[str, torch.Tensor]) -> Operand:
    """Fresh operands in the case's own dtypes: each storage is copied once, operands on it share it."""
    fresh = {
        position: content
        for storage in storages_of(case)
        for content in [contents[storage.name].clone()]
        for position, _ in storage.members
    }

    def operand(position: int, spec: TensorSpec) -> torch.Tensor:
        return on_storage(fresh[position], torch_dtype(spec.dtype), spec.sizes, spec.strides, spec.offset)

    return operand


def spooled_operands(case: Case, contents: Mapping[str, torch.Tensor]) -> Operand:
    """The operands in their own dtypes, on ``contents`` themselves: for one who only reads them."""
    owner = {position: storage.name for storage in storages_of(case) for position, _ in storage.members}

    def operand(position: int, spec: TensorSpec) -> torch.Tensor:
        line = elements_of(contents[owner[position]], torch_dtype(spec.dtype))  # a part of the mapped file
        return line.as_strided(spec.sizes, spec.strides, line.storage_offset() + spec.offset)

    return operand


def single_operands(case: Case, contents: Mapping[str, torch.Tensor]) -> Operand | None:
    """Those of half precision as float32, for an op that computes in it and rounds once; None for any other op."""
    dtypes = [torch_dtype(spec.dtype) for spec in tensors_of(case.args, case.kwargs)]
    if not rounds_once(case) or not set(dtypes) & set(LOW_PRECISION):
        return None
    narrow = narrow_operands(case, contents)

    def operand(position: int, spec: TensorSpec) -> torch.Tensor:
        tensor = narrow(position, spec)
        return tensor.float() if tensor.dtype in LOW_PRECISION else tensor

    return operand
