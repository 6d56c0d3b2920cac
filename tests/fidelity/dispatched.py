"""Which ops a call leads to on the CPU and which on a GPU: real CPU tensors beside fake ``cuda`` ones.

A process of its own: ``python -m tests.fidelity.dispatched LIBRARY CORPUS`` loads the stand-in for CUDA before torch
and prints one JSON object. CORPUS is ``calls`` (tests/fidelity/calls.py), ``autocast`` (autocast_calls.py, with the
dtypes) or ``opinfo`` (torch's own samples of every op that it tests).
"""

from __future__ import annotations

import ctypes
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

if __name__ == "__main__":
    ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL)

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.amp import autocast_mode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from audit.tracer.autocast import patch_autocast
from audit.tracer.backward import BackwardLinks
from audit.tracer.composites import CompositeKernels, find_overload, run_composite

#: Where the fake tensors of a GPU cannot go on, what ran until then is compared.
_NO_VALUES = (DataDependentOutputException, DynamicOutputShapeException)
#: Bookkeeping of autograd and of Python's bindings that fake tensors do otherwise.
_IGNORED = frozenset({"aten::detach", "aten::detach_", "aten::lift_fresh", "aten::alias"})


class Log(TorchDispatchMode):
    """The ops that arrive below autograd, but for those inside a composite that is taken whole."""

    def __init__(self, with_dtypes: bool = False) -> None:
        super().__init__()
        self.with_dtypes = with_dtypes
        self.ops: list[str] = []
        self.whole = 0
        self.links = BackwardLinks()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.name()
        if not (self.whole or name in _IGNORED or name.startswith("prim::") or _is_transfer(name, args, kwargs)):
            node = torch._C._current_autograd_node()
            if node is None or not self.links.owns(node._sequence_nr()):
                self.ops.append(self._entry(name, args))
        return func(*args, **kwargs)

    def _entry(self, name: str, args: Any) -> str:
        if not self.with_dtypes:
            return name
        tensors = [leaf for leaf in tree_leaves(args) if isinstance(leaf, torch.Tensor)]
        return " ".join([name, *(str(tensor.dtype).removeprefix("torch.") for tensor in tensors)])


def _is_transfer(name: str, args: Any, kwargs: Any) -> bool:
    """Host data on its way to the device: no choice of an op."""
    return name == "aten::_to_copy" and args[0].device.type == "cpu" and str(kwargs.get("device", "cpu")) != "cpu"


class Whole:
    """Python kernels by which some ops are logged as one, with all that they lead to."""

    def __init__(self) -> None:
        self.log: Log | None = None
        self.left_out = ""
        self.with_dtypes = False
        self.table = CompositeKernels(lambda op, args, kwargs: None)
        self._library = torch.library.Library("aten", "IMPL")

    def take(self, op: torch._ops.OpOverload) -> None:
        for key in ("AutogradCPU", "AutogradCUDA"):
            self._library.impl(op.name().removeprefix("aten::"), self._kernel(op), key)

    def _kernel(self, op: torch._ops.OpOverload) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            log = self.log
            chosen = op not in self.table.overloads or self.table.takes(op, args, kwargs)
            if log is None or log.whole or op.name() == self.left_out or not chosen:
                return run_composite(op, args, kwargs)
            log.ops.append(log._entry(op.name(), args))
            log.whole += 1
            first = torch._C._autograd._get_sequence_nr()
            try:
                output = run_composite(op, args, kwargs)
            finally:
                log.whole -= 1
            if (end := torch._C._autograd._get_sequence_nr()) > first:
                log.links.follow(output, first, end, lambda grad: None, None)
            return output

        return kernel


@dataclass
class Seen:
    """What the two sides did. ``differences``: call -> (ops only on the CPU, ops only on the GPU). ``needed``: rows
    of the table without which their own call differs."""

    n_compared: int = 0
    n_cut_short: int = 0
    differences: dict[str, tuple[dict[str, int], dict[str, int]]] = field(default_factory=dict)
    not_compared: dict[str, str] = field(default_factory=dict)
    needed: list[str] = field(default_factory=list)


Call = tuple[str, Callable[[], Any], tuple[Any, ...], dict[str, Any]]


def compare(whole: Whole, calls: Iterator[Call], seen: Seen) -> None:
    for name, function, args, kwargs in calls:
        try:
            fake_args, fake_kwargs = _faked((args, kwargs))
        except NotImplementedError as reason:
            seen.not_compared[name] = str(reason)
            continue
        cpu, cpu_error = _run(whole, function, args, kwargs)
        if cpu_error:
            seen.not_compared[name] = f"on the CPU: {cpu_error}"
            continue
        gpu, gpu_error = _run(whole, function, fake_args, fake_kwargs)
        if isinstance(gpu_error, _NO_VALUES):
            cpu = cpu[: len(gpu)]
            seen.n_cut_short += 1
        elif gpu_error:
            seen.not_compared[name] = f"on the GPU: {type(gpu_error).__name__}: {str(gpu_error)[:150]}"
            if gpu != cpu[: len(gpu)]:  # it took its own way before this build lacked the kernel
                seen.differences.setdefault(name, (dict(Counter(cpu)), dict(Counter(gpu))))
            continue
        seen.n_compared += 1
        on_cpu, on_gpu = Counter(cpu), Counter(gpu)
        if on_cpu != on_gpu:
            seen.differences.setdefault(name, (dict(on_cpu - on_gpu), dict(on_gpu - on_cpu)))


def _run(whole: Whole, function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[list[str], Exception | None]:
    leaves = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    fake = next((leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)), None)
    # A mode is thread-local, and the engine runs the backward of a GPU's tensors on a thread of its own.
    with torch.autograd.set_multithreading_enabled(False), fake or nullcontext(), Log(whole.with_dtypes) as log:
        whole.log = log
        try:
            outputs = [leaf for leaf in tree_leaves(function(*args, **kwargs)) if _differentiable(leaf)]
            inputs = [leaf for leaf in leaves if leaf.requires_grad]
            if outputs and inputs:
                ones = [torch.ones_like(output) for output in outputs]
                torch.autograd.grad(outputs, inputs, ones, allow_unused=True)
        except Exception as error:  # noqa: BLE001 - whatever a sample raises is an answer of that side
            return log.ops, error
        finally:
            whole.log = None
    return log.ops, None


def _differentiable(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None and leaf.is_floating_point()


def _faked(arguments: Any) -> Any:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    made: dict[int, FakeTensor] = {}  # the same tensor twice stays the same: attention asks for it

    def fake(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            if id(value) in made:
                return made[id(value)]
            if value.layout is not torch.strided or value.is_nested:
                raise NotImplementedError("not strided")
            with torch.no_grad():
                meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
            made[id(value)] = FakeTensor(mode, meta, torch.device("cuda", 0)).requires_grad_(value.requires_grad)
            return made[id(value)]
        return "cuda" if value == "cpu" and isinstance(value, str) else value

    return tree_map(fake, arguments)


def opinfo_calls(n_samples: int) -> Iterator[Call]:
    """The first samples of every op in torch's own tests, in fp32, fp16 and int64."""
    from torch.testing._internal.common_methods_invocations import op_db

    for op in op_db:
        for dtype in (torch.float32, torch.float16, torch.int64):
            if dtype not in op.dtypes:
                continue
            grad = op.supports_autograd and dtype.is_floating_point
            try:
                samples = list(op.sample_inputs("cpu", dtype, requires_grad=grad))
            except (IndexError, RuntimeError):  # samples that only a GPU can make
                continue
            for sample in samples[:n_samples]:
                yield op.name, op, (sample.input, *sample.args), dict(sample.kwargs)


def _has_two_kernels(op: torch._ops.OpOverload) -> bool:
    """Composite for unknown devices, with a kernel for the CPU and, in a build for GPUs, one for CUDA."""
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return has(op.name(), "CompositeImplicitAutograd") and has(op.name(), "CPU")


def needed_rows(whole: Whole) -> list[str]:
    """Rows of the table that, left out, let their own call lead to other ops on a GPU, or to a kernel only it has."""
    from tests.fidelity.calls import rows

    needed = []
    for call in rows():
        op, alone = find_overload(call[0]), Seen()
        whole.left_out = op.name() if op is not None else ""
        compare(whole, iter([call]), alone)
        needed += [call[0]] if alone.differences or alone.not_compared else []
    whole.left_out = ""
    return sorted(set(needed))


def main(corpus: str) -> None:
    warnings.simplefilter("ignore")
    torch.cuda._lazy_init = lambda: None
    whole, seen = Whole(), Seen()
    for op in whole.table.overloads:
        whole.take(op)
    for name in torch._C._dispatch_get_all_op_names():
        op = find_overload(name.removeprefix("aten::")) if name.startswith("aten::") else None
        if isinstance(op, torch._ops.OpOverload) and _has_two_kernels(op):
            whole.take(op)
    if corpus == "autocast":
        from tests.fidelity.autocast_calls import calls as autocast_calls

        torch.cuda.is_available = torch.cuda.is_bf16_supported = lambda *_: True
        patch_autocast(setattr, lambda: None, lambda tensor: True)
        cast = autocast_mode._cast  # of custom_fwd, which asks each tensor: here the CPU stands for the GPU
        autocast_mode._cast = lambda value, kind, dtype: cast(cast(value, "cpu", dtype), kind, dtype)
        whole.with_dtypes = True
        compare(whole, autocast_calls(), seen)
    elif corpus == "opinfo":
        compare(whole, opinfo_calls(n_samples=10), seen)
    else:
        from tests.fidelity.calls import calls

        compare(whole, calls(), seen)
        seen.needed = needed_rows(whole)
    print(json.dumps(vars(seen)))


if __name__ == "__main__":
    main(sys.argv[2])
