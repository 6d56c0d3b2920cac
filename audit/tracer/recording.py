"""The dispatch mode that sees one thread's aten calls and enters them into the ledger.

Each call is folded into a hashable signature; a known signature costs a dictionary look-up and a count. The op itself
is always run exactly as the program asked, and its result is returned untouched.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode_temporarily,
)

from audit.device.conjugates import COMPOSED, resolving_conjugates
from audit.device.steering import in_force
from audit.schema import Phase
from audit.tracer import virtual_gpu
from audit.tracer.backward import BackwardLinks, GradSampler
from audit.tracer.collectives import message_of
from audit.tracer.composites import (
    CompositeKernels,
    Interceptor,
    is_composite,
    is_vendor_op,
    run_composite,
    run_dispatched_composite,
)
from audit.tracer.forms import desugars, has_special_form
from audit.tracer.higher_order import run_higher_order
from audit.tracer.layouts import ATTENTION, run_attention
from audit.tracer.ledger import Ledger
from audit.tracer.record import Record, record_key
from audit.tracer.signature import Folded, Folding, NotReplayable, uses_accelerator
from audit.tracer.transforms import base_of, is_grad_alone, is_transformed, without_transforms
from audit.tracer.unaudited import COLLECTIVE, FAKE, HIGHER_ORDER, is_python_op, qualified_name, reason_for
from audit.tracer.values import KeptCall, ValueRecorder
from audit.tracer.whereabouts import ForwardPlaces, ModuleStack, SourceLines, within_transform

#: At most this many distinct modules and source lines are kept per case; the count of calls is always exact.
MAX_PLACES = 64
#: The additive mask of attention is a float whose exact values decide what is attended to.
_EXACT_POSITIONS: Mapping[str, frozenset[int]] = {"aten::scaled_dot_product_attention.default": frozenset({3})}
#: Asked of fake tensors, by autograd too, and more often than all ops together.
_DEVICE = torch.ops.prim.device.default
_FAKE = torch._C._TorchDispatchModeKey.FAKE


@dataclass(frozen=True)
class _Handling:
    """What is done with the calls of one op: ``unaudited`` says why they are no cases, ``run`` None runs them as is."""

    name: str
    unaudited: str
    run: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any] | None
    one_device: bool = False
    composed: bool = False


class Recording(TorchDispatchMode):
    """Records the calls of one thread between ``__enter__`` and ``__exit__``, while its ledger is open.

    ``values`` None switches value capture off; ``shapes`` is the fake mode whose calls are recorded (``Recorder``).
    """

    #: Higher-order ops come here instead of raising (torch 2.10+), and dynamo works under this mode as it does without.
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Spares the wrapper that keeps dynamo out of the calls below, at 3 us each: nothing is compiled here."""
        return False

    def __init__(
        self,
        ledger: Ledger,
        values: ValueRecorder | None,
        modules: ModuleStack,
        sources: SourceLines,
        composites: CompositeKernels,
        shapes: FakeTensorMode | None,
    ) -> None:
        super().__init__()
        self.values = values
        self.in_optimizer = False
        self.ledger = ledger
        self._modules = modules
        self._sources = sources
        self._composites = composites
        self._shapes = shapes
        self._places = ForwardPlaces()
        self._backward = BackwardLinks()
        self._transformed: list[tuple[int, int]] = []  # numbers of the nodes that transforms made
        self._suspended = 0
        self._inside = ""  # the op of the program's own that runs
        self._handling: dict[Any, _Handling] = {}
        self._graph_task = -1
        self._graph_task_depth = 0
        self._on_gpu_last = False
        self._has_gpu = torch.cuda.is_available()  # without one, and without a virtual one, nothing is on a GPU

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Lets this thread's ops run unrecorded."""
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1

    # --- calls -------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE or self._suspended or not self.ledger.open:
            if not virtual_gpu.is_active() or func is _DEVICE:
                return func(*args, **(kwargs or {}))
            return _marked(uses_accelerator(args, kwargs), func, func(*args, **(kwargs or {})))
        if types and any(desugars(cls) for cls in types):
            fake = [issubclass(cls, FakeTensor) for cls in types if desugars(cls)]
            if not (all(fake) if self._shapes is not None else any(fake)):
                return NotImplemented  # the subclass runs first, and its inner ops come back here
            if self._shapes is None:
                return self._run_fake(func, args, kwargs or {})
        if torch._C._get_dispatch_mode(_FAKE) is not self._shapes:
            return self._run_fake(func, args, kwargs or {})
        handling = self._handling.get(func) or self._handle(func)
        if handling.run is not None:
            return handling.run(func, args, kwargs or {})
        if handling.composed:
            with resolving_conjugates():
                return self._run_as_is(func, args, kwargs, handling)
        return self._run_as_is(func, args, kwargs, handling)

    def _run_as_is(self, func: Any, args: Any, kwargs: Any, handling: _Handling) -> Any:
        if virtual_gpu.is_active():
            return self._run_beside_virtual_gpu(func, args, kwargs or {}, handling)
        self._record(func, args, kwargs, handling, self._has_gpu and uses_accelerator(args, kwargs))
        return func(*args, **(kwargs or {}))

    def _run_beside_virtual_gpu(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], handling: _Handling
    ) -> Any:
        accelerator = uses_accelerator(args, kwargs)
        if accelerator:
            self._on_gpu_last = True
            self._record(func, args, kwargs, handling, accelerator)
            try:
                output = func(*args, **kwargs)
            except (NotImplementedError, RuntimeError) as error:
                output = virtual_gpu.run_in_fp32(func, args, kwargs, error)
            return _marked(accelerator, func, output)
        place = virtual_gpu.open_place_of(args, kwargs)
        if place is None:
            self._on_gpu_last = False
            self._record(func, args, kwargs, handling, accelerator)
            return func(*args, **kwargs)
        if self._on_gpu_last and torch._C._current_graph_task_id() != -1:
            place.settle()  # the gradients that a node makes are where the gradients are that it got
            with virtual_gpu.named("cuda"):
                self._record(func, args, kwargs, handling, accelerator=True)
                return _marked(True, func, func(*args, **kwargs))
        record = self._record(func, args, kwargs, handling, accelerator)
        output = func(*args, **kwargs)
        virtual_gpu.leave_open(output, place)
        if record is not None:
            place.when_settled(partial(self.ledger.move_to_accelerator, record))
        return output

    def _handle(self, func: Any) -> _Handling:
        """Decides, once for each op, what is done with its calls."""
        if not isinstance(func, torch._ops.OpOverload):
            handling = _Handling(f"higher_order::{func}", HIGHER_ORDER, self._run_higher_order)
        elif func in self._composites.overloads:
            handling = _Handling(qualified_name(func), "", self._run_dispatched_composite)
        elif func.namespace == "prim":  # a question about a tensor, such as the device of a fake one
            handling = _Handling(qualified_name(func), "", lambda op, args, kwargs: op(*args, **kwargs))
        elif is_composite(func):
            handling = _Handling(qualified_name(func), "", self._run_plain_composite)
        else:
            run = self._run_python_op if is_python_op(func) else None
            name = qualified_name(func)
            composed = str(func._schema.name) in COMPOSED
            handling = _Handling(name, reason_for(func), run, is_vendor_op(name), composed)
        self._handling[func] = handling
        return handling

    def _run_higher_order(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The modules of its body are graphs, not the program's own: entered in backward, they are backward's work."""
        _, phase, _ = self._whereabouts()
        self.ledger.name_call(f"higher_order::{op}", HIGHER_ORDER)
        before = self._graph_task_depth
        if phase == "backward":
            self._graph_task_depth = sys.maxsize
        try:
            return run_higher_order(self, op, args, kwargs)
        finally:
            self._graph_task_depth = before

    def _run_dispatched_composite(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._composites.takes(op, args, kwargs):
            return self._run_plain_composite(op, args, kwargs)
        return self._record_composite(op, args, kwargs, run_dispatched_composite)

    def _run_plain_composite(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Only inference mode lets composites through to here; their parts are recorded, as in the other modes."""
        if has_special_form((args, tuple(kwargs.values()))):
            self._record(op, args, kwargs, self._handling[op], uses_accelerator(args, kwargs))
            return op(*args, **kwargs)
        with self:
            return run_dispatched_composite(op, args, kwargs)

    def _has_subclass(self, arguments: tuple[Any, ...] | list[Any]) -> bool:
        """Whether a tensor among the arguments handles dispatch itself, so that its inner ops are what is recorded."""
        return any(
            self._has_subclass(item)
            if isinstance(item, (tuple, list))
            else isinstance(item, torch.Tensor)
            and desugars(type(item))
            and not (self._shapes is not None and isinstance(item, FakeTensor))
            for item in arguments
        )

    def _run_fake(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.ledger.name_call(str(func), FAKE)
        return func(*args, **kwargs)

    def _run_python_op(self, func: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The kernel of an op of the program's, with this mode on: the ops that it calls are what a device runs."""
        accelerator = uses_accelerator(args, kwargs)
        self._record(func, args, kwargs, self._handling[func], accelerator)
        # Without a GPU the kernel for one is taken where it is Python too, as the program's GPU would.
        on_gpu = accelerator and (not virtual_gpu.is_active() or _has_kernel(func, "CUDA"))
        key = torch._C.DispatchKey.CUDA if on_gpu else torch._C.DispatchKey.CPU
        outer, self._inside = self._inside, qualified_name(func)
        try:
            with self:
                return func.redispatch(torch._C.DispatchKeySet(key), *args, **kwargs)
        finally:
            self._inside = outer

    def intercept(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A composite, on its way from the program to autograd."""
        if (
            self._suspended
            or not self.ledger.open
            or (is_transformed() and not is_grad_alone())
            or self._has_subclass((args, tuple(kwargs.values())))
        ):
            return run_composite(op, args, kwargs)
        return self._record_composite(op, args, kwargs)

    def _record_composite(
        self,
        op: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Interceptor = run_composite,
    ) -> Any:
        handling = self._handling.get(op) or self._handle(op)
        accelerator, wanting = uses_accelerator(args, kwargs), set[int]()
        named = {name: base_of(value, wanting) for name, value in kwargs.items()}
        bare = [base_of(value, wanting) for value in args]
        record = self._record(op, bare, named, handling, accelerator, torch.is_grad_enabled(), wanting)
        first_node = _next_node_number()
        with self._off():
            if op is ATTENTION and accelerator and virtual_gpu.is_active():
                output = _marked(accelerator, op, run_attention(run, args, kwargs))
            else:
                output = _marked(accelerator, op, run(op, args, kwargs))
        if is_transformed():
            self._transformed.append((first_node, _next_node_number()))
        if record is not None and _next_node_number() > first_node:
            call = self._backward.follow(
                output, first_node, _next_node_number(), _fold_grad, self._grad_sampler(record)
            )
            if call is not None:
                record.with_backward.append(call)
        return output

    @contextmanager
    def _off(self) -> Iterator[None]:
        """Takes this mode off the stack for a composite's own ops, which are not recorded.

        Composites ask whether a mode is there (``areAnyTensorSubclassLike``) and then take another path: ctc_loss of
        GPU tensors with lengths on the CPU, which works untraced, raises on it. A transform has noted that a mode is
        there, and fails without it: within one the mode stays and does nothing.
        """
        self._suspended += 1
        try:
            if _get_current_dispatch_mode() is self and not is_transformed():
                with _pop_mode_temporarily():
                    yield
            else:
                yield
        finally:
            self._suspended -= 1

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """The looks at values are ops too: neither this mode nor one of the program's sees them."""
        self._suspended += 1
        try:
            with (
                _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext(),
                virtual_gpu.real_devices(),
                without_transforms(),
            ):
                yield
        finally:
            self._suspended -= 1

    def _grad_sampler(self, record: Record) -> GradSampler | None:
        """Looks at the gradients of a call whose operands were looked at."""
        if self.values is None or not record.looked_at:
            return None
        values = self.values

        def sample(output: int, folded: Folded, grad: torch.Tensor) -> None:
            if _is_capturing():
                return
            with self.ledger.lock, self._looking():
                values.sample({0: grad}, record.kept_grads.setdefault((output, folded), KeptCall()))

        return sample

    def _record(
        self,
        func: torch._ops.OpOverload,
        args: Any,
        kwargs: Any,
        handling: _Handling,
        accelerator: bool,
        grad: bool = False,
        wanting: Container[int] = (),
    ) -> Record | None:
        """Counts one call; None when it is not auditable or belongs to a composite's own backward.

        ``grad``: whether autograd records it; ``wanting`` are ids of tensors that a transform differentiates.
        """
        place, phase, recomputed = self._whereabouts()
        if phase is None:
            return None
        if handling.unaudited:
            passed = message_of(func, args, kwargs or {}) if handling.unaudited == COLLECTIVE else None
            self.ledger.name_call(handling.name, handling.unaudited, passed)
            return None
        folding = Folding(accelerator, grad, wanting)
        try:
            folded = folding.call(args, kwargs)
        except NotReplayable as reason:
            self.ledger.name_call(handling.name, str(reason))
            return None
        settings = in_force(handling.name)
        key = record_key(func, phase, accelerator, folded, settings)
        ledger = self.ledger
        with ledger.lock:
            if not ledger.open:
                return None  # a thread that outlives the program
            ledger.n_recorded += 1
            record = ledger.records.get(key)
            if record is None:
                record = Record(func, handling.name, folded, phase, accelerator, settings, len(folding.tensors))
                ledger.records[key] = record
            record.n_calls += 1
            record.n_recomputed += recomputed
            record.n_missed += handling.one_device and self._missed()
            if self._inside:
                record.inside[self._inside] += 1
            if len(record.modules) < MAX_PLACES:
                record.modules[place[0]] += 1
            if len(record.sources) < MAX_PLACES:
                record.sources[place[1]] += 1
            record.looked_at = self.values is not None and record.kept.is_looked_at(record.n_calls)
            if record.looked_at:
                self._sample(record, folding.tensors)
        return record

    def _missed(self) -> bool:
        """Whether a call of one device's op belongs to no transform, nor to the backward of what one ran."""
        number = _next_node_number() - 1
        if within_transform():
            self._transformed.append((number, number + 1))
            return False
        node = torch._C._current_autograd_node()
        return node is None or not any(first <= node._sequence_nr() < end for first, end in self._transformed)

    def _sample(self, record: Record, tensors: list[torch.Tensor]) -> None:
        assert self.values is not None
        if _is_capturing():
            return
        with self._looking():
            exact = _EXACT_POSITIONS.get(record.op, frozenset())
            elementwise = torch.Tag.pointwise in record.func.tags
            self.values.sample(dict(enumerate(tensors)), record.kept, exact, elementwise)

    def _whereabouts(self) -> tuple[tuple[str, str], Phase | None, bool]:
        """(module, source line), phase and whether it is recomputation; phase None inside a composite's backward."""
        graph_task = torch._C._current_graph_task_id()
        if graph_task != self._graph_task:
            self._graph_task, self._graph_task_depth = graph_task, self._modules.depth
        recomputed = False
        if graph_task != -1:
            # A module that was entered since backward began is being recomputed: that is forward work.
            recomputed = self._modules.depth > self._graph_task_depth or self._sources.recomputing()
            if not recomputed:
                node = torch._C._current_autograd_node()
                number = node._sequence_nr() if node is not None else -1
                if self._backward.owns(number):
                    return ("", ""), None, False
                return self._places.find(number) or ("", self._sources.current()), "backward", False
        place = (self._modules.path, self._sources.current())
        if self.in_optimizer:
            return place, "optimizer", False
        self._places.note(_next_node_number() - 1, place)
        return place, "forward", recomputed


# --- one call ---------------------------------------------------------------------------------------------------


def _has_kernel(func: torch._ops.OpOverload, key: str) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))


def _marked(accelerator: bool, func: Any, output: Any) -> Any:
    """The output of a call; on a machine without a GPU, what a redirected program has there stays there."""
    if accelerator and virtual_gpu.is_active():
        virtual_gpu.mark_results(func, output)
    return output


def _is_capturing() -> bool:
    """Whether the program records a CUDA graph, of which looks at values would become a part."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()


def _next_node_number() -> int:
    """The number that the next autograd node made on this thread will get."""
    return torch._C._autograd._get_sequence_nr()


def _fold_grad(grad: torch.Tensor) -> Folded:
    try:
        return Folding(accelerator=False, grad=False).fold(grad)
    except NotReplayable:
        return None
