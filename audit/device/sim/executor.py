"""The one way that an op takes through the simulated device: log it, let a fault have it, else compute it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils._pytree import tree_leaves, tree_map

from audit.device.conjugates import resolving_conjugates
from audit.device.failure import NotSimulatedError, classify
from audit.device.sim import attention, miopen, recurrent
from audit.device.sim.faults import Call, Fault, match
from audit.device.sim.missing import refuse_missing
from audit.device.sim.rounding import Rounding, healthy
from audit.device.sim.routes import ROUTES, landed
from audit.schema import Copy, Kernel

#: Ops that HIP has and the CPU does not, by schema name.
KERNELS: Mapping[str, Callable[..., Any]] = {**attention.KERNELS, **miopen.KERNELS, **recurrent.KERNELS}

#: CPU kernels that call further ops: run below their entry, so that those ops get their healthy rounding.
_COMPOSED = ("aten::_transformer_encoder_layer_fwd", "aten::_native_multi_head_attention")

#: Ops that answer a question about tensors or move metadata: no kernel runs for them.
_NO_KERNEL = ("aten::_use_cudnn_ctc_loss", "aten::_use_miopen_ctc_loss", "aten::detach", "aten::alias", "aten::empty",
              "aten::empty_strided", "aten::lift_fresh", "aten::set_", "aten::resize_")  # fmt: skip

#: Ops that wait for a count or a value on the host: bytes of that scalar copy.
_SCALAR_COPIES = {"aten::nonzero": 8, "aten::_unique2": 8, "aten::masked_select": 8, "aten::equal": 1}


@dataclass
class Log:
    """What an observer would have seen: qualified ops, kernels, copies, in order."""

    ops: list[str] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)


def qualified(func: OpOverload) -> str:
    """``aten::mm.default``, ``aten::add.Tensor``."""
    return f"{func._schema.name}.{func._overloadname}"


class Executor:
    """State of the one simulated device of this process: its faults, the case's phase, what was logged."""

    def __init__(self) -> None:
        self.faults: dict[str, Fault] = {}
        self.phase = "forward"
        self.log = Log()
        self._suspended: list[Fault] = []
        self._deferred: BaseException | None = None

    def begin(self, phase: str) -> None:
        """Forgets what the case before left behind."""
        self.phase, self.log, self._deferred = phase, Log(), None
        self._suspended.clear()

    def fault_for(self, op: str) -> Fault | None:
        """The fault that ``op`` meets now; none while that same fault is asking for the healthy result."""
        fault = None if self._deferred is not None else match(self.faults, op)
        return None if fault is None or any(fault is other for other in self._suspended) else fault

    @contextmanager
    def without(self, fault: Fault) -> Iterator[None]:
        """Inside, ``fault`` does not fire."""
        self._suspended.append(fault)
        try:
            yield
        finally:
            self._suspended.remove(fault)

    @staticmethod
    def in_compiled_backward() -> bool:
        """True while the autograd engine runs one of its own (C++) nodes on this thread."""
        node = torch._C._current_autograd_node()
        return node is not None and not isinstance(node, torch.autograd.function.BackwardCFunction)

    def deferring(self, run: Callable[[], Any]) -> Any:
        """Runs one op of a C++ backward node; what it raises is raised when this backward ends, with healthy results.

        A Python exception cannot leave such a node: while it unwinds, the engine's stream guard asks the Python device
        guard for its type, which fails with an exception pending and ends the process (torch 2.13,
        PythonDeviceGuard::exchangeStream). An engine callback persists the exception before it unwinds.
        """
        try:
            return run()
        except BaseException as error:  # noqa: BLE001  # not handled here, only carried past C++: see above
            if self._deferred is not None:
                return None  # no healthy result either; what ATen makes of that ends this backward
            self._deferred = error
            torch.autograd.Variable._execution_engine.queue_callback(self._raise_deferred)
            return self.deferring(run)

    def _raise_deferred(self) -> None:
        error, self._deferred = self._deferred, None
        if error is not None:
            raise error

    def note_op(self, op: str) -> None:
        self.log.ops.append(op)

    def call_of(self, op: str, args: Sequence[Any], kwargs: dict[str, Any], run: Callable[..., Any]) -> Call:
        """What a fault is given."""
        log = self.log
        return Call(op, tuple(args), dict(kwargs), self.phase, run, log.kernels.append, log.copies.append)

    def execute(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the device returns for ``func`` on plain CPU tensors."""
        op = qualified(func)
        self.note_op(op)
        fault = self.fault_for(op)
        if fault is None:
            return self.compute(func, args, kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            with self.without(fault):
                return self.compute(func, args, kwargs)

        with resolving_conjugates():
            returned = fault(self.call_of(op, args, kwargs, run))
        return _land(func, args, kwargs, returned)

    def compute(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The healthy result; a routed op goes on as the op that HIP picks, which may meet a fault of its own."""
        if self._deferred is None:
            refuse_missing(func, args, kwargs)
        name = str(func._schema.name)
        routed = ROUTES[name](*args, **kwargs) if name in ROUTES else None
        if routed is not None:
            return landed(name, args, self.execute(*routed))
        started = time.perf_counter()
        if name in KERNELS:
            result = KERNELS[name](*args, **kwargs)
        elif name in _COMPOSED:
            with Rounding():
                result = func._op_dk(torch._C.DispatchKey.CPU, *args, **kwargs)
        else:
            result = _on_cpu(func, args, kwargs)
        self._note_work(func, args, kwargs, (time.perf_counter() - started) * 1e6)
        return result

    def _note_work(self, func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], us: float) -> None:
        name = str(func._schema.name)
        if name in _SCALAR_COPIES:
            self.log.copies.append(Copy("DtoH", _SCALAR_COPIES[name]))
        if name == "aten::_local_scalar_dense":
            self.log.copies.append(Copy("DtoH", int(args[0].element_size())))
        elif not (func.is_view or name in _NO_KERNEL):
            self.log.kernels.append(Kernel(f"sim::{name.split('::')[-1]}", us))


def _on_cpu(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The healthy result by the CPU's kernel. That the CPU has none for an op or dtype is no statement about HIP."""
    try:
        with resolving_conjugates():
            return healthy(func, args, kwargs)
    except RuntimeError as error:
        if not isinstance(error, NotImplementedError) and classify(error) != "missing_kernel":
            raise
        reason = str(error).partition(". ")[0].partition("\n")[0]
        message = f"the simulated device cannot compute {qualified(func)}, a HIP device may: {reason}"
        raise NotSimulatedError(message) from error


def _land(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], returned: Any) -> Any:
    """What a fault returned, as the op would: written into what an in-place or ``out=`` op writes, else its own."""
    names = {argument.name: position for position, argument in enumerate(func._schema.arguments)}
    written = [
        kwargs[name] if name in kwargs else args[names[name]]
        for name in (a.name for a in func._schema.arguments if a.alias_info is not None and a.alias_info.is_write)
        if name in kwargs or names[name] < len(args)
    ]
    if not written or not func._schema.returns or func._schema.returns[0].alias_info is None:
        inputs = [] if func.is_view or written else tensor_leaves((tuple(args), kwargs))
        return map_tensors(lambda leaf: leaf.clone() if any(leaf is x for x in inputs) else leaf, returned)
    results = [returned] if isinstance(returned, torch.Tensor) else list(returned or ())
    for target, result in zip(written, results, strict=False):
        if isinstance(target, torch.Tensor) and isinstance(result, torch.Tensor) and result is not target:
            target.copy_(result)
    return written[0] if isinstance(returned, torch.Tensor) else tuple(written[: len(results)])


def map_tensors(change: Callable[[Any], Any], tree: Any) -> Any:
    """``change`` applied to every leaf; here so that callers need not know torch's private pytree."""
    return tree_map(change, tree)


def tensor_leaves(tree: Any) -> list[torch.Tensor]:
    """Every tensor in ``tree``, in order."""
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


EXECUTOR = Executor()
