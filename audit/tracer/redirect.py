"""Lets a program written for ``cuda`` run on a machine without a GPU, by patching the entry points that name it.

Only while tracing, and only where no GPU is there. A TorchFunctionMode or a ``torch.device`` context would do with less
code, and changes which ops run (the encoder fast path vanishes), so the entry points themselves are wrapped: they turn
``cuda`` into ``cpu`` and leave every other argument alone.
"""

from __future__ import annotations

import functools
import threading
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch.jit._builtins import _get_builtin_table
from torch.utils._device import DeviceContext, _device_constructors

from audit.schema import DeviceInfo
from audit.tracer.autocast import patch_autocast

#: Functions of ``torch`` that take a ``device``; those a torch version lacks are passed over.
_FACTORIES = (
    "arange", "as_tensor", "asarray", "empty", "empty_like", "empty_permuted", "empty_strided", "eye", "full",
    "full_like", "linspace", "logspace", "normal", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like",
    "randn", "randn_like", "randperm", "scalar_tensor", "tensor", "tril_indices", "triu_indices", "zeros", "zeros_like",
    "load", "set_default_device",
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window", "range",
    "sparse_coo_tensor", "sparse_csr_tensor", "sparse_compressed_tensor", "set_default_tensor_type",
)  # fmt: skip
#: How the tensor types of old scripts begin, as in ``x.type("torch.cuda.HalfTensor")``.
_GPU_TYPE = "torch.cuda."
_TENSOR_TYPES = ("Bool", "Byte", "Char", "Short", "Int", "Long", "Half", "BFloat16", "Float", "Double")
_TENSOR_METHODS = ("new_empty", "new_full", "new_ones", "new_tensor", "new_zeros", "new_empty_strided", "type")


#: Set when a redirected program has named a GPU: from then on it is one that could not run here untraced.
GPU_NAMED = threading.Event()


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _is_number(value: object) -> bool:
    """Where a device is expected, a plain number is that GPU."""
    return isinstance(value, int) and not isinstance(value, bool)


def _to_cpu(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(_GPU_TYPE):
        return value.replace(_GPU_TYPE, "torch.", 1)
    if not _is_cuda(value):
        return value
    GPU_NAMED.set()
    return torch.device("cpu")


def _stays(value: Any, *args: Any, **kwargs: Any) -> Any:
    """What ``.cuda()`` gives: the tensor or module itself."""
    GPU_NAMED.set()
    return value


def _redirected(function: Callable[..., Any], takes_number: bool = False) -> Callable[..., Any]:
    """``function`` with every ``cuda`` device among its arguments turned into ``cpu``, and no memory pinned.

    ``takes_number``: its first argument after self may be the number of a GPU.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        args = tuple(_to_cpu(arg) for arg in args)
        if takes_number and len(args) > 1 and _is_number(args[1]):
            args = (args[0], _to_cpu(torch.device("cuda")), *args[2:])
        for name in ("device", "map_location"):
            if _is_cuda(kwargs.get(name)) or _is_number(kwargs.get(name)):
                kwargs[name] = _to_cpu(torch.device("cuda"))
        kwargs.pop("pin_memory", None)
        return function(*args, **kwargs)

    return call


class _Patches:
    """Attributes replaced for a while."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def set(self, owner: Any, name: str, value: Any) -> None:
        missing = object()
        old = owner.__dict__.get(name, missing)
        setattr(owner, name, value)
        if old is missing:
            self._stack.callback(delattr, owner, name)
        else:
            self._stack.callback(setattr, owner, name, old)

    def wrap(self, owner: Any, name: str, takes_number: bool = False) -> None:
        function = getattr(owner, name, None)
        if function is not None:
            wrapper = _redirected(function, takes_number)
            self.set(owner, name, wrapper)
            self._known_to_torchscript(function, wrapper)

    def _known_to_torchscript(self, function: Any, wrapper: Any) -> None:
        """TorchScript knows torch's functions by identity; forward-mode autograd scripts its formulas, too."""
        table = _get_builtin_table()
        if id(function) in table:
            table[id(wrapper)] = table[id(function)]
            self._stack.callback(table.pop, id(wrapper))


@contextmanager
def cuda_redirected_to_cpu(device: DeviceInfo) -> Iterator[None]:
    """While open, ``cuda`` means the CPU, and ``torch.cuda`` answers as a machine with ``device`` would."""
    GPU_NAMED.clear()
    _device_constructors()  # kept by torch from its first call on: it must hold the functions themselves
    with ExitStack() as stack:
        patches = _Patches(stack)
        patches.wrap(DeviceContext, "__init__")  # `with torch.device("cuda"):`
        for name in _FACTORIES:
            patches.wrap(torch, name)
        for name in _TENSOR_METHODS:
            patches.wrap(torch.Tensor, name)
        for name in ("fftfreq", "rfftfreq"):
            patches.wrap(torch.fft, name)
        for name in ("nested_tensor", "as_nested_tensor"):
            patches.wrap(torch.nested, name)
        patches.wrap(torch.Tensor, "to", takes_number=True)
        patches.wrap(torch.nn.Module, "to", takes_number=True)
        patches.wrap(torch.nn.Module, "to_empty")
        patches.set(torch.Tensor, "cuda", _stays)
        patches.set(torch.Tensor, "record_stream", lambda tensor, stream: None)
        patches.set(torch.Tensor, "pin_memory", lambda tensor, *args, **kwargs: tensor)
        patches.set(torch.nn.Module, "cuda", _stays)
        patches.set(torch.UntypedStorage, "cuda", _stays)
        _patch_generator(patches)
        _patch_data_parallel(patches)
        _patch_autocast(patches, stack)
        _patch_cuda_module(patches, device)
        _patch_accelerator_module(patches)
        yield


def _patch_generator(patches: _Patches) -> None:
    original = torch.Generator

    class Kind(type(original)):  # type: ignore[misc]  # a metaclass that mypy cannot see
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, original)

    class Generator(original, metaclass=Kind):  # type: ignore[misc, valid-type]
        def __new__(cls, device: Any = "cpu") -> Any:
            return original.__new__(original, device=_to_cpu(device))  # type: ignore[call-arg]  # a C type

    patches.set(torch, "Generator", Generator)


def _patch_data_parallel(patches: _Patches) -> None:
    original = torch.nn.DataParallel.__init__

    def start(self: torch.nn.DataParallel[Any], *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.device_ids = []  # as torch itself does without a GPU: the module is called as it is

    patches.set(torch.nn.DataParallel, "__init__", start)


def _patch_autocast(patches: _Patches, stack: ExitStack) -> None:
    """Autocast as on a GPU; a GradScaler on the CPU runs the same ops."""
    stack.callback(patch_autocast(patches.set, GPU_NAMED.set))
    scaler = torch.amp.grad_scaler.GradScaler.__init__

    def start_scaler(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        scaler(self, "cpu" if _is_cuda(device) else device, *args, **kwargs)

    patches.set(torch.amp.grad_scaler.GradScaler, "__init__", start_scaler)


class _Stream:
    """Stands for a stream or event where work is done at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        if name in ("record", "wait", "synchronize", "wait_event", "wait_stream", "record_event"):
            return lambda *args, **kwargs: None
        if name == "query":
            return lambda: True
        if name == "is_capturing":
            return lambda: False
        if name == "elapsed_time":
            return lambda end: 0.0
        raise AttributeError(name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *args: object) -> None:
        return None


def _patch_cuda_module(patches: _Patches, device: DeviceInfo) -> None:
    memory = int(device.properties.get("total_memory_bytes", "0"))
    properties = types.SimpleNamespace(
        name=device.name,
        gcnArchName=device.arch,
        total_memory=memory,
        multi_processor_count=int(device.properties.get("compute_units", "0")),
        major=int(device.properties.get("capability_major", "9")),
        minor=int(device.properties.get("capability_minor", "0")),
        warp_size=int(device.properties.get("wavefront", "64")),
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "is_initialized": True,
        "get_device_name": device.name,
        "get_device_properties": properties,
        "get_device_capability": (properties.major, properties.minor),
        "get_arch_list": [device.arch],
        "is_bf16_supported": True,
        "mem_get_info": (memory, memory),
        "memory_stats": {},
        "memory_summary": "",
        "is_current_stream_capturing": False,
        "initial_seed": 0,
        **dict.fromkeys(("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"), 0),
        **dict.fromkeys(
            ("init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "ipc_collect", "set_stream",
             "reset_max_memory_allocated", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all"),
        ),
    }  # fmt: skip
    for name, answer in answers.items():
        patches.set(torch.cuda, name, functools.partial(_answer, answer))
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all"):
        patches.set(torch.cuda, name, functools.partial(_answer, None))
    patches.set(torch.cuda, "get_rng_state", lambda *args: torch.zeros(16, dtype=torch.uint8))
    patches.set(torch.cuda, "get_rng_state_all", lambda: [torch.zeros(16, dtype=torch.uint8)])
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        patches.set(torch.cuda.nvtx, name, functools.partial(_answer, None))
    for name in _TENSOR_TYPES:
        patches.set(torch.cuda, f"{name}Tensor", getattr(torch, f"{name}Tensor"))
    patches.set(torch.cuda, "Stream", _Stream)
    patches.set(torch.cuda, "Event", _Stream)
    patches.set(torch.cuda, "current_stream", lambda *args: _Stream())
    patches.set(torch.cuda, "default_stream", lambda *args: _Stream())
    patches.set(torch.cuda, "stream", lambda *args: nullcontext())
    patches.set(torch.cuda, "device", lambda *args: nullcontext())


def _patch_accelerator_module(patches: _Patches) -> None:
    """``torch.accelerator`` (2.6 on) asks ``torch.cuda.is_available`` and then C++, which asks the driver.

    Optimizers go that way on every step: without this a CUDA build on a machine without a GPU ends the program there.
    """
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "current_device_idx": 0,
        "current_stream": _Stream(),
        **dict.fromkeys(("set_device_index", "set_device_idx", "set_stream", "synchronize", "empty_cache")),
    }
    for name, answer in answers.items():
        if hasattr(torch.accelerator, name):
            patches.set(torch.accelerator, name, functools.partial(_answer, answer))


def _answer(value: Any, *args: Any, **kwargs: Any) -> Any:
    return value


def redirection(device: DeviceInfo | None) -> AbstractContextManager[None]:
    """The redirection where this machine has no GPU and ``device`` is given, else nothing."""
    if device is None or torch.cuda.is_available():
        return nullcontext()
    return cuda_redirected_to_cpu(device)
