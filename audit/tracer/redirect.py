"""Lets a program written for ``cuda`` run on a machine without a GPU, by patching the entry points that name it.

Only while tracing, and only where no GPU is there. A TorchFunctionMode or a ``torch.device`` context would do with less
code, and changes which ops run (the encoder fast path vanishes), so the entry points themselves are wrapped: they turn
``cuda`` into ``cpu``, leave every other argument alone, and mark what they return as being on the virtual GPU.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.nested._internal import sdpa as _nested_sdpa
from torch.nn.attention import SDPBackend
from torch.utils._device import DeviceContext, _device_constructors

from audit.schema import DeviceInfo
from audit.tracer import virtual_gpu
from audit.tracer.autocast import patch_autocast
from audit.tracer.cuda_answers import answer_as
from audit.tracer.patches import Patches
from audit.tracer.virtual_gpu import CPU, GPU, asked, is_on_gpu, named, put_on_gpu, put_storage_on_gpu

#: Functions of ``torch`` that take a ``device``; those a torch version lacks are passed over.
_FACTORIES = (
    "arange", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full",
    "full_like", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "randperm", "scalar_tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window", "range",
    "sparse_coo_tensor", "sparse_csr_tensor", "sparse_compressed_tensor",
)  # fmt: skip
#: Functions that bring data which the host has: on a GPU they end in a copy to it.
_FROM_HOST = ("tensor", "as_tensor", "asarray")
#: How the tensor types of old scripts begin, as in ``x.type("torch.cuda.HalfTensor")``.
_GPU_TYPE = "torch.cuda."
_TENSOR_TYPES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")
_TENSOR_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "new_empty_strided")

#: Set when a redirected program has named a GPU: from then on it is one that could not run here untraced.
GPU_NAMED = threading.Event()


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _is_number(value: object) -> bool:
    """Where a device is expected, a plain number is that GPU."""
    return isinstance(value, int) and not isinstance(value, bool)


def _without_gpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, tuple[Any, ...], dict[str, Any]]:
    """Whether the arguments name a GPU, and the same with the CPU for it; no memory is pinned."""
    names_gpu = any(map(_is_cuda, args)) or _is_cuda(kwargs.get("device")) or _is_number(kwargs.get("device"))
    kwargs.pop("pin_memory", None)
    if names_gpu:
        GPU_NAMED.set()
        args = tuple(CPU if _is_cuda(arg) else arg for arg in args)
        if "device" in kwargs:
            kwargs["device"] = CPU
    return names_gpu, args, kwargs


# --- functions that make tensors -----------------------------------------------------------------------------------


def _factory(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` that makes a tensor: on the virtual GPU where its arguments, or a default device, name one."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        names_gpu, args, kwargs = _without_gpu(args, kwargs)
        if not names_gpu:
            with asked():
                return function(*args, **kwargs)
        with named("cuda"):
            return put_on_gpu(function(*args, **kwargs))

    return make


def _from_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.tensor`` and its like: made on the CPU and copied, which is what the recorder then sees."""

    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        names_gpu, args, kwargs = _without_gpu(args, kwargs)
        requires_grad = names_gpu and bool(kwargs.pop("requires_grad", False))
        made = function(*args, **kwargs)
        if not names_gpu:
            return made
        made = made.to(GPU)
        return made.requires_grad_() if requires_grad else made

    return make


def _nested(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.nested.nested_tensor``: the jagged form is made in Python, of functions that know what to do."""
    make = _factory(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (function if kwargs.get("layout") is torch.jagged else make)(*args, **kwargs)

    return call


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that makes a tensor like its own: where its own is, or where it is told."""
    make = _factory(function)

    @functools.wraps(function)
    def call(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        made = make(tensor, *args, **kwargs)
        return put_on_gpu(made) if kwargs.get("device") is None and is_on_gpu(tensor) else made

    return call


def _default_device(function: Callable[..., Any]) -> Callable[..., Any]:
    """``DeviceContext.__torch_function__``, which adds the device of ``with torch.device("cuda"):`` to factories."""

    def call(context: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        on_gpu = getattr(context, "on_virtual_gpu", False) and func in _device_constructors()
        if not on_gpu or (kwargs or {}).get("device") is not None:
            return function(context, func, types, args, kwargs)
        with named("cuda"):
            return put_on_gpu(function(context, func, types, args, kwargs))

    return call


def _device_context(function: Callable[..., Any]) -> Callable[..., Any]:
    def start(context: Any, device: Any) -> None:
        context.on_virtual_gpu = _is_cuda(device) or _is_number(device)
        if context.on_virtual_gpu:
            GPU_NAMED.set()
        function(context, CPU if context.on_virtual_gpu else device)

    return start


# --- moves ---------------------------------------------------------------------------------------------------------


def _moving(function: Callable[..., Any]) -> Callable[..., Any]:
    """``Tensor.to``: between the two devices it copies, as it must on a GPU; within one it is as it was."""

    @functools.wraps(function)
    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        target = kwargs.get("device", args[0] if args else kwargs.get("other"))
        if isinstance(target, torch.Tensor):
            on_gpu: bool | None = is_on_gpu(target)
        elif _is_cuda(target) or (_is_number(target) and not isinstance(target, torch.dtype)):
            on_gpu = True
        else:
            on_gpu = False if str(target).partition(":")[0] == "cpu" else None
        if on_gpu is None:  # a dtype, or another device
            return function(tensor, *args, **kwargs)
        if on_gpu:
            GPU_NAMED.set()
        if "device" in kwargs:
            kwargs["device"] = CPU
        elif args and not isinstance(target, torch.Tensor):
            args = (CPU, *args[1:])
        if on_gpu == is_on_gpu(tensor):
            return function(tensor, *args, **kwargs)
        if len(args) < 4 and not (isinstance(target, torch.Tensor) and len(args) > 2):
            kwargs["copy"] = True
        with named("cuda" if on_gpu else "cpu"):
            moved = function(tensor, *args, **kwargs)
            return put_on_gpu(moved) if on_gpu else moved

    return to


def _to_gpu(tensor: torch.Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
    layout = {} if memory_format is None else {"memory_format": memory_format}
    return tensor.to(GPU, non_blocking=non_blocking, **layout)


def _to_cpu(tensor: torch.Tensor, memory_format: Any = None) -> Any:
    return tensor.to(CPU) if memory_format is None else tensor.to(CPU, memory_format=memory_format)


def _of_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """``x.type("torch.cuda.HalfTensor")``, and the name of the type of a tensor on the GPU."""

    def of_type(tensor: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if dtype is None:
            name = function(tensor)
            return name.replace("torch.", _GPU_TYPE, 1) if is_on_gpu(tensor) else name
        if isinstance(dtype, str) and dtype.startswith(_GPU_TYPE):
            return function(tensor, dtype.replace(_GPU_TYPE, "torch.", 1), *args, **kwargs).to(GPU)
        return function(tensor, dtype, *args, **kwargs)

    return of_type


def _numbered(function: Callable[..., Any]) -> Callable[..., Any]:
    """``module.to(0)``; with a device, ``Module.to`` asks each of its tensors, which know what to do."""

    def to(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if args and _is_number(args[0]):
            args = (GPU, *args[1:])
        if _is_number(kwargs.get("device")):
            kwargs["device"] = GPU
        return function(module, *args, **kwargs)

    return to


def _storage_to_gpu(storage: torch.UntypedStorage, *args: Any, **kwargs: Any) -> torch.UntypedStorage:
    GPU_NAMED.set()
    return put_storage_on_gpu(storage.clone())


def _loading(function: Callable[..., Any]) -> Callable[..., Any]:
    """``torch.load``: what was saved on a GPU, or is sent there by ``map_location``, is on the virtual one."""

    def place(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage:
        return put_storage_on_gpu(storage) if location.startswith("cuda") else storage

    @functools.wraps(function)
    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        if _is_cuda(map_location) or _is_number(map_location):
            GPU_NAMED.set()
            return function(file, lambda storage, location: put_storage_on_gpu(storage), *args, **kwargs)
        if isinstance(map_location, dict):
            targets = map_location
            return function(
                file, lambda storage, location: place(storage, str(targets.get(location, location))), *args, **kwargs
            )
        return function(file, place if map_location is None else map_location, *args, **kwargs)

    return load


# --- all of it -----------------------------------------------------------------------------------------------------


@contextmanager
def cuda_redirected_to_cpu(device: DeviceInfo) -> Iterator[None]:
    """While open, ``cuda`` is a virtual GPU on the CPU, and ``torch.cuda`` answers as a machine with ``device``."""
    GPU_NAMED.clear()
    _device_constructors()  # kept by torch from its first call on: it must hold the functions themselves
    with ExitStack() as stack:
        patches = Patches(stack)
        for name in _FACTORIES:
            patches.wrap(torch, name, _factory)
        for name in _FROM_HOST:
            patches.wrap(torch, name, _from_host)
        for name in _TENSOR_METHODS:
            patches.wrap(torch.Tensor, name, _method)
        for name in ("fftfreq", "rfftfreq"):
            patches.wrap(torch.fft, name, _factory)
        for name in ("nested_tensor", "as_nested_tensor"):
            patches.wrap(torch.nested, name, _nested)
        patches.wrap(_nested_sdpa, "_select_sdp_backend", lambda function: lambda *args: SDPBackend.MATH)
        patches.wrap(torch.Tensor, "_make_wrapper_subclass", lambda function: staticmethod(_factory(function)))
        patches.wrap(torch, "load", _loading)
        patches.wrap(DeviceContext, "__init__", _device_context)  # `with torch.device("cuda"):`, set_default_device
        patches.wrap(DeviceContext, "__torch_function__", _default_device)
        patches.wrap(torch.Tensor, "to", _moving)
        patches.wrap(torch.Tensor, "type", _of_type)
        patches.wrap(torch.nn.Module, "to", _numbered)
        patches.set(torch.Tensor, "cuda", _to_gpu)
        patches.set(torch.Tensor, "cpu", _to_cpu)
        patches.set(torch.Tensor, "record_stream", lambda tensor, stream: None)
        patches.set(torch.Tensor, "pin_memory", lambda tensor, *args, **kwargs: tensor)
        patches.set(torch.UntypedStorage, "cuda", _storage_to_gpu)
        for name in _TENSOR_TYPES:
            patches.set(torch.cuda, f"{name}Tensor", _from_type(getattr(torch, f"{name}Tensor")))
        _patch_generator(patches)
        _patch_data_parallel(patches)
        stack.callback(patch_autocast(patches.set, GPU_NAMED.set, is_on_gpu))
        answer_as(device, patches)
        virtual_gpu.install(patches)
        yield


def _from_type(kind: Any) -> Callable[..., Any]:
    """``torch.cuda.FloatTensor``, of which old scripts make tensors."""
    return lambda *args, **kwargs: kind(*args, **kwargs).to(GPU)


def _patch_generator(patches: Patches) -> None:
    original = torch.Generator

    class Kind(type(original)):  # type: ignore[misc]  # a metaclass that mypy cannot see
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            on_gpu = _is_cuda(device) or _is_number(device)
            return original.__new__(original, device=CPU if on_gpu else device)  # type: ignore[call-arg]  # a C type

    patches.set(torch, "Generator", Generator)


def _patch_data_parallel(patches: Patches) -> None:
    original = torch.nn.DataParallel.__init__

    def start(self: torch.nn.DataParallel[Any], *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.device_ids = []  # as torch itself does without a GPU: the module is called as it is

    patches.set(torch.nn.DataParallel, "__init__", start)


def redirection(device: DeviceInfo | None) -> AbstractContextManager[None]:
    """The redirection where this machine has no GPU and ``device`` is given, else nothing."""
    if device is None or torch.cuda.is_available():
        return nullcontext()
    return cuda_redirected_to_cpu(device)
