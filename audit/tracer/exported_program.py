"""A program of ``torch.export``, as a model with its inputs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_unflatten

from audit.errors import UsageError
from audit.targets import InputShape
from audit.tracer.exported_archive import sanitised_copy

#: Taken before it is redirected, when it answers for a machine that has one.
_gpu_is_here = torch.cuda.is_available
#: A size that the program left open and gave no example for; 0 and 1 are special to torch.
_OPEN_SIZE = 2


def define(path: Path, shape: InputShape) -> dict[str, Any]:
    """``model``, a function, and ``inputs`` of the exported program at ``path``. Raises UsageError.

    The inputs are the example that it was exported with, else made from its signature; ``shape`` changes dimensions
    that the program left open.
    """
    if shape.dtype is not None:
        raise UsageError(
            f"{path.name} was exported with the dtypes that it has; --dtype cannot change them", "bad-arguments"
        )
    with tempfile.TemporaryDirectory(prefix="rocm-audit-") as folder:
        copy = Path(folder, "program.pt2")
        sampled = sanitised_copy(path, copy, "cuda" if _gpu_is_here() else "cpu")
        try:
            with _disable_current_modes():  # torch makes fake tensors of its own while it reads
                program = torch.export.load(copy)
                module = program.module()
        except Exception as error:  # whatever torch makes of an archive of another version
            message = " ".join(str(error).split())[:300]
            raise UsageError(
                f"torch {torch.__version__} cannot read {path}: {type(error).__name__}: {message}",
                "unreadable-exported",
            ) from error
    leaves = _leaves(program, sampled)
    arguments, keywords = tree_unflatten(_resized(path, program, leaves, shape), program.call_spec.in_spec)
    return {"model": lambda: module(*arguments, **keywords), "inputs": ()}


def _placeholders(program: torch.export.ExportedProgram) -> list[Any]:
    """What stands for each of the caller's arguments: a fake tensor with open sizes, or a constant."""
    named = set(program.graph_signature.user_inputs)
    return [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder" and node.name in named]


def _leaves(program: torch.export.ExportedProgram, sampled: bool) -> list[Any]:
    """The arguments, flat: the example's, else normal floats and zeros, since an integer may be an index."""
    if sampled and program.example_inputs:
        return tree_leaves(program.example_inputs)
    return [_made(value) if isinstance(value, torch.Tensor) else value for value in _placeholders(program)]


def _made(stand_in: torch.Tensor) -> torch.Tensor:
    sizes = [size if isinstance(size, int) else size.node.hint or _OPEN_SIZE for size in stand_in.size()]
    if stand_in.dtype.is_floating_point or stand_in.dtype.is_complex:
        return torch.randn(sizes, dtype=stand_in.dtype)
    return torch.zeros(sizes, dtype=stand_in.dtype)


def _resized(path: Path, program: torch.export.ExportedProgram, leaves: list[Any], shape: InputShape) -> list[Any]:
    """The arguments with open first dimensions of ``--batch``, open second ones of ``--seq``, by going round."""
    for dimension, (option, asked) in enumerate((("--batch", shape.batch), ("--seq", shape.seq))):
        if asked is None:
            continue
        n_changed = 0
        for number, stand_in in enumerate(_placeholders(program)):
            if isinstance(stand_in, torch.Tensor) and stand_in.dim() > dimension:
                if isinstance(stand_in.size(dimension), int):
                    continue
                places = torch.arange(asked) % leaves[number].size(dimension)
                leaves[number] = leaves[number].index_select(dimension, places)
                n_changed += 1
        if not n_changed:
            raise UsageError(
                f"{option} {asked}: {path.name} was exported with dimension {dimension} of every input fixed; export "
                "it with `dynamic_shapes`, or leave the option out",
                "bad-arguments",
            )
    return leaves
