"""The GPU that a redirected program believes in: which of its tensors are there, though all are on the CPU.

A storage that the program put on the GPU carries a mark, so that views, ``detach`` and ``.data`` share it; the recorder
marks what a marked operand gives. ``Tensor.device`` and its like answer by the mark, so that a program takes its GPU
branches, and what it does on the CPU (preparation of data) is told apart.

Below the dispatcher nothing is changed: C++ sees CPU tensors. A mark costs 0.2 us to read (torch 2.13), since torch
keeps the Python object of a storage as long as the storage lives.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._C import _functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nested._internal.nested_tensor import NestedTensor
from torch.utils._pytree import tree_leaves, tree_map

from audit.tracer.patches import Patches

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
_MARK = "_rocm_audit_on_gpu"
#: Results that are on the host whatever their operands: op -> number of the result.
_HOST_RESULTS = {"aten._pack_padded_sequence.default": 1}  # batch_sizes, which a loop in C++ reads


class _Here(threading.local):
    """``target``: the device type that the call under way names; ``kernels``: how deep in a fake tensor's kernels.

    ``asked``: how deep in functions of which the program itself asks for a new tensor of the CPU.
    """

    target: str | None = None
    kernels: int = 0
    asked: int = 0


here = _Here()
#: How many redirections are open: without one a tensor is where torch says.
_n_open = 0


class OpenPlace:
    """The mark of what C++ made on the CPU for a tensor that it took for one of the CPU: on which device is not known.

    A gradient's zeros, the padding of a packed sequence. On a GPU it would be there, and a call beside what is there
    settles it; ``moves`` are then made up for: how the calls so far get to the accelerator's account.
    """

    __slots__ = ("_moves", "_on_gpu")

    def __init__(self) -> None:
        self._on_gpu = False
        self._moves: list[Callable[[], None]] = []

    def __bool__(self) -> bool:
        return self._on_gpu

    def when_settled(self, move: Callable[[], None]) -> None:
        if self._on_gpu:
            move()
        else:
            self._moves.append(move)

    def settle(self) -> None:
        """It is on the GPU."""
        self._on_gpu = True
        moves, self._moves = self._moves, []
        for move in moves:
            move()


def is_active() -> bool:
    return _n_open > 0


def is_beside_gpu(storage: torch.UntypedStorage) -> bool:
    """Whether an operand beside one on the GPU is there too; one whose place was open is, from here on."""
    mark = getattr(storage, _MARK, False)
    if mark is not True and isinstance(mark, OpenPlace):
        mark.settle()
    return bool(mark)


def is_on_gpu(tensor: torch.Tensor) -> bool:
    """Whether the program has it on the GPU. A tensor without a storage (sparse) carries the mark itself."""
    if here.kernels:
        return False
    try:
        marked = bool(getattr(tensor.untyped_storage(), _MARK, False))
    except (NotImplementedError, RuntimeError):  # sparse, or a wrapper of vmap or grad
        if _functorch.is_functorch_wrapped_tensor(tensor):
            return is_on_gpu(_functorch.get_unwrapped(tensor))
        marked = bool(tensor.__dict__.get(_MARK, False))
    return marked


def open_place_of(args: Any, kwargs: Any) -> OpenPlace | None:
    """The place of what a call without an operand on the GPU makes, where it is open; None where it is the CPU."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        return None if here.asked else OpenPlace()
    places = [_mark_of(tensor) for tensor in tensors]
    found = [place for place in places if isinstance(place, OpenPlace)]
    if not found or any(place is None and tensor.dim() for place, tensor in zip(places, tensors, strict=True)):
        return None
    for other in found[1:]:
        if other is not found[0]:  # operands of one call are in one place, whichever of them is settled first
            found[0].when_settled(other.settle)
            other.when_settled(found[0].settle)
    return found[0]


def _mark_of(tensor: torch.Tensor) -> Any:
    try:
        return getattr(tensor.untyped_storage(), _MARK, None)
    except (NotImplementedError, RuntimeError):
        return tensor.__dict__.get(_MARK)


def leave_open(output: Any, place: OpenPlace) -> None:
    """What a call made is at this place."""
    for leaf in tree_leaves(output):
        if isinstance(leaf, torch.Tensor) and _mark_of(leaf) is None:
            _set_mark(leaf, place)


def _set_mark(tensor: torch.Tensor, mark: Any) -> None:
    try:
        setattr(tensor.untyped_storage(), _MARK, mark)
    except (NotImplementedError, RuntimeError):
        setattr(tensor, _MARK, mark)


def put_on_gpu(value: Any) -> Any:
    """Marks a tensor, or those in a list, tuple or dict; returns the same object."""
    if isinstance(value, torch.Tensor):
        _set_mark(value, True)
    elif isinstance(value, (list, tuple)):
        for item in value:
            put_on_gpu(item)
    elif isinstance(value, dict):
        put_on_gpu(tuple(value.values()))
    return value


def put_storage_on_gpu(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    setattr(storage, _MARK, True)
    return storage


def mark_results(func: Any, output: Any) -> None:
    """What an op with an operand on the GPU gives is there too, but for results that are an operand.

    Not where the call under way copies to the CPU.
    """
    if here.target == "cpu" or not _makes_tensors(func):
        return
    on_host = _HOST_RESULTS.get(str(func))
    put_on_gpu(output if on_host is None else [item for number, item in enumerate(output) if number != on_host])


def run_in_fp32(func: Any, args: Any, kwargs: Any, error: Exception) -> Any:
    """An op for whose dtype only a GPU has a kernel (``histc`` of int32): in fp32, and its results cast back.

    Raises ``error`` where it says anything else than that, or where the op writes into an operand.
    """
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if "not implemented for" not in str(error) or not tensors or func._schema.is_mutable:
        raise error
    dtype = tensors[0].dtype

    def converted(value: Any, source: torch.dtype, target: torch.dtype) -> Any:
        return value.to(target) if isinstance(value, torch.Tensor) and value.dtype == source else value

    args, kwargs = tree_map(lambda value: converted(value, dtype, torch.float32), (args, kwargs))
    return tree_map(lambda value: converted(value, torch.float32, dtype), func(*args, **kwargs))


@cache
def _makes_tensors(func: Any) -> bool:
    """Whether a result is no operand: a view may be one of a tensor without a storage (nested), whose mark is its own.

    A higher-order op has no schema, and may make tensors.
    """
    schema = getattr(func, "_schema", None)
    return schema is None or not schema.is_mutable or any(entry.alias_info is None for entry in schema.returns)


@contextmanager
def named(target: str) -> Iterator[None]:
    """The call inside names this device type."""
    old, here.target = here.target, target
    try:
        yield
    finally:
        here.target = old


@contextmanager
def asked() -> Iterator[None]:
    """The program asks for a new tensor inside, and means the CPU where it names no device."""
    here.asked += 1
    try:
        yield
    finally:
        here.asked -= 1


@contextmanager
def real_devices() -> Iterator[None]:
    """Inside, ``device`` answers what is: the kernels of fake tensors choose by it."""
    here.kernels += 1
    try:
        yield
    finally:
        here.kernels -= 1


@contextmanager
def _open() -> Iterator[None]:
    global _n_open
    _n_open += 1
    try:
        yield
    finally:
        _n_open -= 1


def install(patches: Patches) -> None:
    """Lets tensors answer by their marks, until the patches are taken back."""
    patches.stack.enter_context(_open())
    patches.set(FakeTensor, "__new__", staticmethod(_fake_on_cpu(FakeTensor.__new__)))
    patches.set(NestedTensor, "__new__", staticmethod(_together(NestedTensor.__new__)))
    patches.set(torch.Tensor, "device", property(_answering(torch.Tensor.device)))
    patches.set(FakeTensor, "device", property(_answering(FakeTensor.device)))
    patches.set(torch.Tensor, "is_cuda", property(is_on_gpu))
    on_cpu: Any = torch.Tensor.is_cpu
    patches.set(torch.Tensor, "is_cpu", property(lambda tensor: on_cpu.__get__(tensor) and not is_on_gpu(tensor)))
    number = torch.Tensor.get_device
    patches.set(torch.Tensor, "get_device", lambda tensor: 0 if is_on_gpu(tensor) else number(tensor))
    patches.wrap(torch, "get_device", lambda original: lambda tensor: tensor.get_device())
    patches.wrap(torch.storage._StorageBase, "clone", _clone)
    patches.wrap(torch._C, "_group_tensors_by_device_and_dtype", _grouped)


def _answering(original: Any) -> Any:
    def device(tensor: torch.Tensor) -> torch.device:
        real: torch.device = original.__get__(tensor)
        return GPU if real.type == "cpu" and is_on_gpu(tensor) else real

    return device


def _grouped(original: Any) -> Any:
    """Optimizers, clipping and averaging ask C++ for their tensors by device, and copy to what it says."""

    def group(*args: Any, **kwargs: Any) -> Any:
        return {
            (GPU if any(tensor is not None and is_on_gpu(tensor) for tensor in lists[0]) else device, dtype): (
                lists,
                *rest,
            )
            for (device, dtype), (lists, *rest) in original(*args, **kwargs).items()
        }

    return group


def _fake_on_cpu(original: Any) -> Any:
    """A fake tensor of the program's, or of torch's own tracing in flex_attention: on the GPU it would end the process.

    Autograd asks for the library of a fake tensor's device, and a build for the CPU has none.
    """

    def new(kind: Any, mode: Any, elem: Any, device: torch.device, *args: Any, **kwargs: Any) -> Any:
        return original(kind, mode, elem, CPU if device.type == "cuda" else device, *args, **kwargs)

    return new


def _together(original: Any) -> Any:
    """The values of a jagged tensor are where its offsets are; in attention they lose their storage."""

    def new(kind: Any, values: torch.Tensor, offsets: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return original(kind, put_on_gpu(values) if is_on_gpu(offsets) else values, offsets, *args, **kwargs)

    return new


def _clone(original: Any) -> Any:
    """A copy of a storage is where the storage is: ``copy.deepcopy`` of a tensor copies its storage."""

    def clone(storage: Any) -> Any:
        copy = original(storage)
        return put_storage_on_gpu(copy) if getattr(storage, _MARK, False) else copy

    return clone
