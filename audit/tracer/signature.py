"""Live op arguments to hashable signatures and schema arguments.

The signature is built on every recorded call and must be cheap; the schema argument is built once per case from it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch._subclasses.fake_tensor import FakeTensor

from audit.schema import Arg, Named, TensorSpec
from audit.tracer import virtual_gpu
from audit.tracer.unaudited import META
from audit.tracer.virtual_gpu import is_beside_gpu

#: What ``fold`` returns for one argument: hashable, equal for equal arguments.
Folded: TypeAlias = Any

_TENSOR = "tensor"
_LIST = "list"
_NUMBER = "number"
_NAMED = "named"
#: Ops on other layouts, quantised tensors and nested tensors are counted and named, not replayed.
_NOT_STRIDED = "not strided"


#: Arguments that are their own signature; looked at first, since torch's classes answer slowly what they are.
_AS_IS = frozenset((bool, str, type(None)))
_PLAIN = _AS_IS | {int, float, complex}


class NotReplayable(Exception):
    """An argument has no place in a case; the message says which and why."""


class Folding:
    """Collects the tensors of one call while its arguments are folded into a hashable signature.

    ``tensors`` are in order of appearance (the positions of ``Case.values``). Tensors that share a storage get the
    number of the first tensor on it.
    """

    __slots__ = ("_grad", "_storages", "_virtual", "_wanting", "accelerator", "tensors")

    def __init__(self, accelerator: bool, grad: bool, wanting: Container[int] = ()) -> None:
        self.tensors: list[torch.Tensor] = []
        self.accelerator = accelerator
        self._grad = grad
        self._wanting = wanting
        self._virtual = virtual_gpu.is_active()
        self._storages: dict[int, int] = {}

    def call(self, args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> Folded:
        """The signature of a whole call. Raises NotReplayable."""
        folded = tuple([self.fold(arg) for arg in args])
        if not kwargs:
            return folded, ()
        return folded, tuple([(name, self.fold(arg)) for name, arg in kwargs.items()])

    def fold(self, arg: Any) -> Folded:
        if type(arg) in _AS_IS:
            return arg
        if isinstance(arg, torch.Tensor):
            return self._tensor(arg)
        if isinstance(arg, (int, float, complex)):
            # 1, 1.0 and True are equal keys in Python and different arguments to an op; -0.0 and nan need repr.
            return (_NUMBER, repr(arg), arg if isinstance(arg, int) else None)
        if isinstance(arg, (list, tuple)):
            return (_LIST, tuple([self.fold(item) for item in arg]))
        return self._constant(arg)

    def _tensor(self, tensor: torch.Tensor) -> Folded:
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
            raise NotReplayable(f"{_NOT_STRIDED} tensor ({_form(tensor)})")
        if tensor.is_meta:
            raise NotReplayable(META)
        storage = tensor.untyped_storage()
        if tensor._is_zerotensor() or (not storage.nbytes() and tensor.numel()):
            raise NotReplayable("tensor without memory: zeros by definition, or freed by the program")
        number = self._storages.setdefault(storage._cdata, len(self.tensors))
        self.tensors.append(tensor)
        dtype = tensor.dtype
        return (
            _TENSOR,
            tensor.size(),
            tensor.stride(),
            dtype,
            tensor.storage_offset(),
            storage.nbytes() // dtype.itemsize,
            number,
            self._grad and (tensor.requires_grad or id(tensor) in self._wanting),
            self.accelerator and not (is_beside_gpu(storage) if self._virtual else tensor.is_cuda),
            dtype.is_complex and tensor.is_conj(),
            tensor.is_neg(),
        )

    def _constant(self, arg: Any) -> Folded:
        if isinstance(arg, torch.device):
            if arg.type == "meta":
                raise NotReplayable(META)
            # C++ that fills in the device of its tensor says "cpu" on the virtual GPU too: there only a program's own
            # word means the host, or each cast and each change of layout would be a copy back.
            host = self.accelerator and arg.type == "cpu" and (virtual_gpu.here.target == "cpu" or not self._virtual)
            return (_NAMED, "device", "cpu" if host else "device")
        if isinstance(arg, torch.Generator):
            # A generator that a redirected program made for the GPU is one of the CPU here.
            host = self.accelerator and arg.device.type == "cpu" and not virtual_gpu.is_active()
            return (_NAMED, "generator", "cpu" if host else "device")
        for kind, cls in _CONSTANTS:
            if isinstance(arg, cls):
                return (_NAMED, kind, str(arg).removeprefix("torch."))
        raise NotReplayable(f"argument of type {type(arg).__name__}")


_CONSTANTS: tuple[tuple[str, type], ...] = (
    ("dtype", torch.dtype),
    ("layout", torch.layout),
    ("memory_format", torch.memory_format),
)


def _form(tensor: torch.Tensor) -> str:
    if tensor.is_nested:
        return "nested"
    return "quantised" if tensor.is_quantized else str(tensor.layout).removeprefix("torch.")


def to_arg(folded: Folded) -> Arg:
    """The schema argument for a folded one."""
    if not isinstance(folded, tuple):
        return folded  # type: ignore[no-any-return]  # None, bool or str by construction
    tag = folded[0]
    if tag == _TENSOR:
        return _spec(folded)
    if tag == _LIST:
        return tuple(to_arg(item) for item in folded[1])
    if tag == _NAMED:
        return Named(folded[1], folded[2])
    return folded[2] if folded[2] is not None else _number(folded[1])


def _number(text: str) -> float | complex:
    try:
        return float(text)
    except ValueError:
        return complex(text)


def _spec(folded: Folded) -> TensorSpec:
    _, sizes, strides, dtype, offset, extent, storage, requires_grad, host, conj, neg = folded
    return TensorSpec(
        sizes=tuple(map(int, sizes)),
        strides=tuple(map(int, strides)),
        dtype=str(dtype).removeprefix("torch."),
        offset=int(offset),
        extent=int(extent),
        storage=storage,
        requires_grad=requires_grad,
        host=host,
        conj=conj,
        neg=neg,
    )


def call_to_args(folded: Folded) -> tuple[tuple[Arg, ...], tuple[tuple[str, Arg], ...]]:
    """Schema args and kwargs for what ``Folding.call`` returned."""
    args, kwargs = folded
    return tuple(to_arg(arg) for arg in args), tuple((name, to_arg(arg)) for name, arg in kwargs)


def uses_accelerator(args: Sequence[Any], kwargs: Mapping[str, Any] | None) -> bool:
    """Whether any tensor, device or generator of the call is on an accelerator; CPU operands beside it stay hosts."""
    virtual = virtual_gpu.is_active()
    for arg in (*args, *(kwargs.values() if kwargs else ())):
        if type(arg) in _PLAIN:
            continue
        if isinstance(arg, torch.Tensor):
            # A fake tensor of a machine with a GPU answers is_cuda by an op, at ten times the cost.
            if isinstance(arg, FakeTensor) and arg.fake_device.type == "cuda":
                return True
            if virtual_gpu.is_on_gpu(arg) if virtual else arg.is_cuda:
                return True
        elif isinstance(arg, torch.device):
            if arg.type == "cuda" or (arg.type == "cpu" and virtual_gpu.here.target == "cuda"):
                return True
        elif isinstance(arg, torch.Generator):
            if arg.device.type == "cuda":
                return True
        elif isinstance(arg, (list, tuple)) and uses_accelerator(arg, None):
            return True
    return False
