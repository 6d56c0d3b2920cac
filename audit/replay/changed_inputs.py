"""The inputs of a changed case: the very values of the case itself, laid out or rounded as the change says."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch

from audit.changed_case import changed_case
from audit.codec import tensors_of
from audit.replay.inputs import Storage, elements_of, storages_of, torch_dtype
from audit.replay.spool import Index, on_storage, read_spool, write_spool
from audit.run_records import Change
from audit.schema import Case, TensorSpec


def changed_for_replay(case: Case, change: Change) -> Case:
    """The changed case under a key of its own, which names its files in the spool folder."""
    return dataclasses.replace(changed_case(case, change), key=f"{case.key}.changed")


def spool_changed(case: Case, changed: Case, folder: Path, index: Index) -> dict[str, tuple[int, int]]:
    """Writes the inputs of ``changed`` from those of ``case``, which are spooled under ``index``; their own index."""
    contents = read_spool(folder / f"{case.key}.inputs", index)
    specs = tensors_of(case.args, case.kwargs, case.grads)
    of_position = {position: storage for storage in storages_of(case) for position, _ in storage.members}
    made = {storage.name: _made(storage, of_position, specs, contents) for storage in storages_of(changed)}
    return write_spool(folder / f"{changed.key}.inputs", made)


def _made(
    storage: Storage, of_position: dict[int, Storage], specs: list[TensorSpec], contents: dict[str, torch.Tensor]
) -> torch.Tensor:
    """The bytes of one storage. One that no change touches is taken whole, with what lies between its operands."""
    first, new = storage.members[0]
    source = of_position[first]
    if all(specs[position] == spec for position, spec in storage.members):
        return contents[source.name]
    old = specs[first]
    content = contents[source.name].clone()  # a mapped part of the file, whose own storage is the whole
    if (new.storage, new.strides, new.offset) == (old.storage, old.strides, old.offset):  # only the dtype is another
        return elements_of(content, torch_dtype(old.dtype)).to(torch_dtype(new.dtype)).view(torch.uint8)
    made = torch.zeros(storage.nbytes, dtype=torch.uint8)  # laid out anew, and then alone: see ``changed_case``
    values = on_storage(content, torch_dtype(old.dtype), old.sizes, old.strides, old.offset)
    elements_of(made, torch_dtype(new.dtype)).as_strided(new.sizes, new.strides, new.offset).copy_(values)
    return made
