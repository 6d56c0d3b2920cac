"""What ``torch.cuda`` and its neighbours answer without a GPU: as a ROCm machine with the chosen one would.

Streams and events are done at once, memory is never used, a captured graph runs while it is captured.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from audit.schema import DeviceInfo
from audit.tracer.patches import Patches

#: Programs read these to tell ROCm from CUDA. PyTorch's wheels of 2.10 to 2.13 have been built with ROCm 7.0 to 7.2.
HIP_VERSION = "7.1.25424"
ROCM_VERSION = "7.1.0"
#: ``torch.backends.cudnn.benchmark_limit`` as torch begins.
_BENCHMARK_LIMIT = 10
#: What ``torch.backends.cudnn.version()`` gives under ROCm: MIOpen 3.5.0.
MIOPEN_VERSION = 3005000
_MODULES = ("memory", "random", "tunable", "profiler", "nvtx", "nccl", "comm", "graphs")


class _Stream:
    """Stands for a stream or event where work is done at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.device = torch.device("cuda", 0)
        self.device_index = self.stream_id = self.cuda_stream = self.cuda_event = 0

    def __getattr__(self, name: str) -> Any:
        if name in ("record", "wait", "synchronize", "wait_event", "wait_stream", "record_event"):
            return lambda *args, **kwargs: None
        if name == "query":
            return lambda: True
        if name == "is_capturing":
            return lambda: False
        if name == "elapsed_time":
            return lambda end: 1.0
        raise AttributeError(name)

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *args: object) -> None:
        return None


class _Choice:
    """A device or stream that is made the current one for a block."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.idx = self.prev_idx = 0

    def __enter__(self) -> None:
        return None

    def __exit__(self, *args: object) -> None:
        return None


class _Graph:
    """A CUDA graph: its capture runs the ops, which are recorded; a replay repeats them and is nothing new."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


@contextmanager
def _captured(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def answer_as(device: DeviceInfo, patches: Patches) -> None:
    """Until the patches are taken back, ``torch.cuda`` answers as a machine with ``device`` would."""
    _answer_questions(device, patches)
    _replace_objects(patches)
    _excuse_the_rest(patches)
    _answer_for_backends(patches)
    _answer_for_accelerator(patches)
    for name, value in (("hip", HIP_VERSION), ("rocm", ROCM_VERSION), ("cuda", None)):
        if hasattr(torch.version, name):
            patches.set(torch.version, name, value)


def capability(arch: str) -> tuple[int, int]:
    """What ``get_device_capability`` gives under ROCm: ``gfx942`` is (9, 4), ``gfx1100`` is (11, 0)."""
    digits = arch.removeprefix("gfx")
    return (int(digits[:-2]), int(digits[-2], 16)) if digits[:-2].isdigit() else (9, 0)


def _properties(device: DeviceInfo) -> types.SimpleNamespace:
    major, minor = capability(device.arch)
    facts = device.properties
    return types.SimpleNamespace(
        name=device.name,
        gcnArchName=f"{device.arch}:sramecc+:xnack-",
        major=major,
        minor=minor,
        total_memory=int(facts.get("total_memory_bytes", "0")),
        multi_processor_count=int(facts.get("compute_units", "0")),
        warp_size=int(facts.get("wavefront", "64")),
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=65536,
        shared_memory_per_multiprocessor=65536,
        L2_cache_size=4 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        uuid="00000000-0000-0000-0000-000000000000",
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def _answer_questions(device: DeviceInfo, patches: Patches) -> None:
    properties = _properties(device)
    memory = properties.total_memory
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "is_initialized": True,
        "get_device_name": device.name,
        "get_device_properties": properties,
        "get_device_capability": (properties.major, properties.minor),
        "get_arch_list": [device.arch],
        "get_gencode_flags": f"--offload-arch={device.arch}",
        "is_bf16_supported": True,
        "is_tf32_supported": False,
        "can_device_access_peer": False,
        "mem_get_info": (memory, memory),
        "memory_stats": {},
        "memory_stats_as_nested_dict": {},
        "memory_summary": "",
        "memory_snapshot": [],
        "list_gpu_processes": "",
        "get_allocator_backend": "native",
        "is_current_stream_capturing": False,
        "graph_pool_handle": (0, 0),
        "initial_seed": 0,
        "get_sync_debug_mode": 0,
        **dict.fromkeys(
            ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
             "max_memory_cached", "memory_usage", "utilization", "temperature", "power_draw", "clock_rate",
             "device_memory_used", "current_blas_handle"), 0,
        ),
        **dict.fromkeys(
            ("init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats", "ipc_collect", "set_stream",
             "reset_max_memory_allocated", "set_per_process_memory_fraction", "set_rng_state", "set_rng_state_all",
             "manual_seed", "manual_seed_all", "seed", "seed_all"),
        ),
    }  # fmt: skip
    homes = [torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.graphs]
    for name, answer in answers.items():
        for home in homes:
            if hasattr(home, name):
                patches.set(home, name, functools.partial(_answer, answer))
    for home in (torch.cuda, torch.cuda.random):
        patches.set(home, "get_rng_state", lambda *args: torch.zeros(16, dtype=torch.uint8))
        patches.set(home, "get_rng_state_all", lambda: [torch.zeros(16, dtype=torch.uint8)])


def _replace_objects(patches: Patches) -> None:
    patches.set(torch.cuda, "Stream", _Stream)
    patches.set(torch.cuda, "ExternalStream", _Stream)
    patches.set(torch.cuda, "Event", _Stream)
    patches.set(torch.cuda, "current_stream", lambda *args: _Stream())
    patches.set(torch.cuda, "default_stream", lambda *args: _Stream())
    for name in ("stream", "StreamContext", "device", "device_of"):
        patches.set(torch.cuda, name, _Choice)
    for home in (torch.cuda, torch.cuda.graphs):
        patches.set(home, "CUDAGraph", _Graph)
        patches.set(home, "graph", _captured)
        patches.set(home, "make_graphed_callables", lambda callables, *args, **kwargs: callables)


def _excuse_the_rest(patches: Patches) -> None:
    """Functions that need a driver give None where they would raise: statistics, tuning, profiling, peer access."""
    for home in (torch.cuda, *(getattr(torch.cuda, name) for name in _MODULES if hasattr(torch.cuda, name))):
        for name, function in list(vars(home).items()):
            public = isinstance(function, types.FunctionType) and not name.startswith("_")
            if public and function.__module__.startswith("torch.cuda"):
                patches.set(home, name, _excused(function))


def _excused(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (AssertionError, AttributeError, ImportError, RuntimeError):
            return None

    return call


def _answer_for_backends(patches: Patches) -> None:
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    cudnn = getattr(torch.backends.cudnn, "m", torch.backends.cudnn)  # the module behind its properties
    answers = {
        "is_available": True,
        "version": MIOPEN_VERSION,
        "is_acceptable": False,  # nn.LSTM would pack its weights for a library that is not here
    }
    for name, answer in answers.items():
        patches.set(cudnn, name, functools.partial(_answer, answer))
    if not hasattr(torch._C, "_cuda_get_cudnn_benchmark_limit"):  # cudnn.flags asks for it where cuDNN is there
        limit = [_BENCHMARK_LIMIT]
        patches.set(torch._C, "_cuda_get_cudnn_benchmark_limit", lambda: limit[0])
        patches.set(torch._C, "_cuda_set_cudnn_benchmark_limit", lambda value: limit.__setitem__(0, value))


def _answer_for_accelerator(patches: Patches) -> None:
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
