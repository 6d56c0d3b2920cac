"""The inputs of a case: its storages filled with stored or synthesised values, and a call bound to tensors on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from audit.codec import tensors_of
from audit.errors import UsageError
from audit.replay.operand import Operand, plain
from audit.replay.overload import arguments_of, operand_names
from audit.replay.roles import role_of
from audit.replay.stream import Stream
from audit.schema import Arg, Case, Named, TensorSpec, Values


class InputError(Exception):
    """The recorded inputs cannot be rebuilt (values that do not fit, an unknown dtype): about us, not the op."""


@dataclass(frozen=True)
class Storage:
    """Memory under one or more operands. ``members`` are (position, spec); ``host`` storages stay on the CPU."""

    name: str
    nbytes: int
    host: bool
    members: tuple[tuple[int, TensorSpec], ...]


@dataclass(frozen=True)
class Bound:
    """A call with real tensors. ``operands`` are all of them by position; ``grads`` go with the outputs."""

    args: list[Any]
    kwargs: dict[str, Any]
    grads: list[torch.Tensor | None]
    operands: list[torch.Tensor]


def torch_dtype(name: str) -> torch.dtype:
    """``bfloat16`` to ``torch.bfloat16``. Raises InputError where this torch has no such dtype."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"torch {torch.__version__} has no dtype {name!r}")
    return dtype


def reach(sizes: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last that a tensor touches (0 where it is empty)."""
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def storages_of(case: Case) -> list[Storage]:
    """The storages of a case in order of first use; operands with the same number share one."""
    groups: dict[tuple[int, bool], list[tuple[int, TensorSpec]]] = {}
    for position, spec in enumerate(tensors_of(case.args, case.kwargs, case.grads)):
        groups.setdefault((spec.storage, spec.host), []).append((position, spec))
    return [
        Storage(
            name=f"{number}{'h' if host else ''}",
            nbytes=max(_extent(spec) * torch_dtype(spec.dtype).itemsize for _, spec in members),
            host=host,
            members=tuple(members),
        )
        for (number, host), members in groups.items()
    ]


def _extent(spec: TensorSpec) -> int:
    return max(spec.extent, spec.offset + reach(spec.sizes, spec.strides))


# --- values ----------------------------------------------------------------------------------------------------


class ValueFile:
    """Stored operand values, read lazily; ``None`` as path is a file without any. Raises UsageError."""

    def __init__(self, path: Path | None) -> None:
        try:
            self._file = None if path is None else safe_open(str(path), framework="pt")
        except (SafetensorError, OSError) as error:
            raise UsageError(f"the values stored in the trace cannot be read: {error}", "unreadable-values") from error
        self._names = frozenset(() if self._file is None else self._file.keys())

    def get(self, key: str, position: int) -> torch.Tensor | None:
        name = f"{key}/{position}"
        if self._file is None or name not in self._names:
            return None
        tensor: torch.Tensor = self._file.get_tensor(name)
        return tensor


def missing_values(case: Case, stored: ValueFile) -> list[int]:
    """Positions whose values should be in the value file and are not; they are synthesised."""
    return [p for p, values in case.values.items() if values.stored and stored.get(case.key, p) is None]


def materialise(case: Case, stored: ValueFile, seed: int) -> dict[str, torch.Tensor]:
    """The bytes of each storage (1-D uint8), by storage name. Raises InputError.

    Elements that no operand touches are zero. Where operands overlap, stored values win over synthesised ones.
    """
    return {storage.name: _fill(storage, case, stored, seed) for storage in storages_of(case)}


def _fill(storage: Storage, case: Case, stored: ValueFile, seed: int) -> torch.Tensor:
    content = torch.zeros(storage.nbytes, dtype=torch.uint8)
    spans: list[tuple[TensorSpec, torch.Tensor]] = []
    for position, spec in storage.members:
        values = case.values.get(position, Values())
        span = stored.get(case.key, position) if values.stored else None
        if span is not None:
            spans.append((spec, span))
        else:
            made = _synthesised(case, position, spec, values, Stream(seed, case.key, position))
            _put(content, spec, made)
    for spec, span in spans:
        _copy_span(content, spec, span)
    return content


def _copy_span(content: torch.Tensor, spec: TensorSpec, span: torch.Tensor) -> None:
    """Puts a stored span, from the operand's first element to its last reachable one, where it belongs."""
    raw = span.reshape(-1).view(torch.uint8)
    itemsize = torch_dtype(spec.dtype).itemsize
    start, touched = spec.offset * itemsize, reach(spec.sizes, spec.strides) * itemsize
    if raw.numel() != touched:
        raise InputError(
            f"{raw.numel()} bytes are stored for an operand that spans {touched}; the value file is not of this trace"
        )
    content[start : start + touched] = raw


def _synthesised(case: Case, position: int, spec: TensorSpec, values: Values, stream: Stream) -> torch.Tensor:
    """Values for an operand by its role in the op, else by its statistics; they expand to its sizes.

    Dimensions of stride 0 are left at size 1: their elements are one and the same. Raises InputError.
    """
    names = operand_names(case)
    name = names[position] if position < len(names) else ""
    sizes = tuple(1 if step == 0 else size for size, step in zip(spec.sizes, spec.strides, strict=True))
    argument, _, place = name.removesuffix("]").partition("[")
    operand = Operand(argument, sizes, torch_dtype(spec.dtype), values, arguments_of(case), int(place or 0))
    if operand.n == 0:
        return torch.empty(sizes, dtype=operand.dtype)
    make = role_of(case.op, argument) or plain
    try:
        return make(operand, stream)
    except (RuntimeError, IndexError, ValueError) as error:  # arguments of another shape than the op takes
        raise InputError(f"no values fit {name or 'an operand'} of {case.op}: {error}") from error


def _put(content: torch.Tensor, spec: TensorSpec, made: torch.Tensor) -> None:
    if 0 in spec.sizes:
        return
    sizes = tuple(1 if step == 0 else size for size, step in zip(spec.sizes, spec.strides, strict=True))
    target = elements_of(content, torch_dtype(spec.dtype)).as_strided(sizes, spec.strides, spec.offset)
    target.copy_(made)


def elements_of(content: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bytes seen as ``dtype``; a storage shared with smaller elements may end in a part of one."""
    return content[: content.numel() // dtype.itemsize * dtype.itemsize].view(dtype)


# --- binding ---------------------------------------------------------------------------------------------------


def bind(case: Case, operand: Callable[[int, TensorSpec], torch.Tensor], device: torch.device, seed: int) -> Bound:
    """The call with ``operand(position, spec)`` for each tensor and torch's own objects for named constants."""
    operands: list[torch.Tensor] = []

    def leaf(arg: TensorSpec | Named) -> Any:
        if isinstance(arg, Named):
            return named(arg, device, seed)
        operands.append(_with_flags(operand(len(operands), arg), arg, case.grads is not None))
        return operands[-1]

    args = [_built(arg, leaf) for arg in case.args]
    kwargs = {name: _built(arg, leaf) for name, arg in case.kwargs}
    n_inputs = len(operands)
    grads = [_built(grad, leaf) for grad in case.grads or ()]
    for index in range(n_inputs, len(operands)):
        operands[index].requires_grad_(False)
    return Bound(args, kwargs, grads, operands)


def _built(arg: Arg, leaf: Callable[[TensorSpec | Named], Any]) -> Any:
    """No function within ``bind``: one that calls itself keeps all that it sees, here the operands, until Python next
    looks for cycles."""
    if isinstance(arg, (TensorSpec, Named)):
        return leaf(arg)
    return [_built(item, leaf) for item in arg] if isinstance(arg, tuple) else arg


def _with_flags(tensor: torch.Tensor, spec: TensorSpec, under_autograd: bool) -> torch.Tensor:
    if spec.conj:
        tensor = torch.conj(tensor)
    if spec.neg:
        tensor = torch._neg_view(tensor)
    if under_autograd and spec.requires_grad:
        tensor = tensor.detach().requires_grad_()
    return tensor


def named(constant: Named, device: torch.device, seed: int) -> Any:
    """The torch object of a named constant. Raises InputError for a name that this torch does not know."""
    if constant.kind == "dtype":
        return torch_dtype(constant.name)
    if constant.kind == "device":
        return torch.device("cpu") if constant.name == "cpu" else device
    if constant.kind == "generator":
        place = device if constant.name != "cpu" and device.type == "cuda" else torch.device("cpu")
        return torch.Generator(place).manual_seed(seed)
    found = getattr(torch, constant.name, None)
    if found is None:
        raise InputError(f"torch {torch.__version__} has no {constant.kind} {constant.name!r}")
    return found


def seed_generators(seed: int, device: torch.device) -> None:
    """Random ops on the CPU and on ``device`` draw the same numbers after this.

    Not ``torch.manual_seed``: where CUDA is not initialised that queues a call with a stack trace, each time.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed_all(seed)
