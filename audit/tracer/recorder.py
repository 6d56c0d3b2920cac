"""The dispatch mode that turns a running program's aten calls into cases.

Each call is folded into a hashable signature; a known signature costs a dictionary look-up and a count. The op itself
is always run exactly as the program asked, and its result is returned untouched.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch._C._functorch import peek_interpreter_stack
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
    _get_current_dispatch_mode_stack,
    _pop_mode_temporarily,
)

from audit.schema import Case, NotAudited, Phase, Source, Trace
from audit.tracer.backward import BackwardLinks, GradSampler
from audit.tracer.composites import (
    CompositeKernels,
    Interceptor,
    is_composite,
    is_vendor_op,
    run_composite,
    run_dispatched_composite,
)
from audit.tracer.record import Record, cases_of, folded_into
from audit.tracer.signature import Folded, Folding, NotReplayable, uses_accelerator
from audit.tracer.threads import CountingMode, ThreadWatch
from audit.tracer.values import KeptCall, Span, ValueRecorder
from audit.tracer.whereabouts import ForwardPlaces, ModuleStack, SourceLines

#: At most this many distinct modules and source lines are kept per case; the count of calls is always exact.
MAX_PLACES = 64
#: The additive mask of attention is a float whose exact values decide what is attended to.
_EXACT_POSITIONS: Mapping[str, frozenset[int]] = {"aten::scaled_dot_product_attention.default": frozenset({3})}
#: Dispatcher entries that compute nothing.
_ANNOTATIONS = ("profiler::", "prim::")
#: nn.LSTM and its like pack their weights for the GPU that they were traced on; the numbers do not change.
_PACKING = ("aten::_cudnn_rnn_flatten_weight", "aten::_cudnn_init_dropout_state")
_FAKE = torch._C._TorchDispatchModeKey.FAKE
_COLLECTIVES = ("c10d::", "_c10d_functional::", "_c10d_functional_autograd::", "symm_mem::")


class Recorder(TorchDispatchMode):
    """Records every aten call between ``__enter__`` and ``__exit__``; ``build`` gives the trace.

    ``values`` None switches value capture off (for measurement of the bookkeeping alone). ``shapes`` is the fake mode
    that the program runs under with ``--fake``; its calls are recorded, those of any other fake mode are listed.
    """

    #: Regions that dynamo would compile run eagerly under this mode instead of being skipped in silence (torch 2.10+).
    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    def __init__(self, values: ValueRecorder | None, shapes: FakeTensorMode | None = None) -> None:
        super().__init__()
        self.values = values
        self._shapes = shapes
        self.modules = ModuleStack()
        self.n_optimizer_steps = 0
        self.on_optimizer_step: Callable[[], None] | None = None
        self._composites = CompositeKernels(self._intercept)
        self._threads = ThreadWatch()
        self._places = ForwardPlaces()
        self._sources = SourceLines()
        self._backward = BackwardLinks()
        self._records: dict[Any, Record] = {}
        self._not_audited: Counter[tuple[str, str]] = Counter()
        self._n_recorded = 0
        self._notes: list[str] = []
        self._suspended = 0
        self._in_optimizer = False
        self._names: dict[Any, tuple[str, str]] = {}
        self._graph_task = -1
        self._graph_task_depth = 0
        self._handles: list[Any] = []
        self._thread_guard: Any = None

    # --- life --------------------------------------------------------------------------------------------------

    def start(self) -> Recorder:
        """Installs hooks and kernels, and starts recording on this thread."""
        self._composites.install()
        self._threads.install()
        self.modules.install()
        self._handles = [
            register_optimizer_step_pre_hook(self._optimizer_starts),
            register_optimizer_step_post_hook(self._optimizer_ends),
        ]
        # A mode is thread-local: backward on another thread would run unseen.
        self._thread_guard = torch.autograd.set_multithreading_enabled(False)
        self.__enter__()
        return self

    def stop(self) -> None:
        self.__exit__(None, None, None)
        self._thread_guard.__exit__(None, None, None)
        for handle in self._handles:
            handle.remove()
        self.modules.remove()
        self._threads.remove()
        self._composites.remove()
        if n_ops := self._threads.n_ops:
            what = "ops on other threads", "they run beside the recorded thread, and are counted only"
            self._not_audited[what] += n_ops
            self._n_recorded += n_ops
        if self.values is not None:
            self.values.finish()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Lets ops run unrecorded."""
        self._suspended += 1
        try:
            yield
        finally:
            self._suspended -= 1

    def reset(self) -> None:
        """Forgets what was recorded so far (the set-up of a file that defines a model)."""
        self._records.clear()
        self._not_audited.clear()
        self._n_recorded = 0

    @property
    def n_recorded(self) -> int:
        return self._n_recorded

    def _optimizer_starts(self, *_: Any) -> None:
        self._in_optimizer = True

    def _optimizer_ends(self, *_: Any) -> None:
        self._in_optimizer = False
        self.n_optimizer_steps += 1
        if self.on_optimizer_step is not None:
            self.on_optimizer_step()

    # --- calls -------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._suspended:
            return func(*args, **(kwargs or {}))
        if types and any(_desugars(cls) for cls in types):
            fake = [issubclass(cls, FakeTensor) for cls in types if _desugars(cls)]
            if not (all(fake) if self._shapes is not None else any(fake)):
                return NotImplemented  # the subclass runs first, and its inner ops come back here
            if self._shapes is None:
                return self._run_fake(func, args, kwargs or {})
        if torch._C._get_dispatch_mode(_FAKE) is not self._shapes:
            return self._run_fake(func, args, kwargs or {})
        if not isinstance(func, torch._ops.OpOverload):
            self.note_unaudited(str(func), "higher-order op: its body is not a sequence of aten calls")
            return func(*args, **(kwargs or {}))
        if func.namespace == "prim":  # a fake tensor asks for its device
            return func(*args, **(kwargs or {}))
        if self._composites.takes(func, args, kwargs or {}):
            return self._record_composite(func, args, kwargs or {}, run_dispatched_composite)
        if _is_plain_composite(func) and not _has_special_form((args, tuple((kwargs or {}).values()))):
            # Only inference mode lets composites through to here; their parts are recorded, as in the other modes.
            with self:
                return run_dispatched_composite(func, args, kwargs or {})
        self._record(func, args, kwargs)
        return func(*args, **(kwargs or {}))

    def _has_subclass(self, arguments: tuple[Any, ...] | list[Any]) -> bool:
        """Whether a tensor among the arguments handles dispatch itself, so that its inner ops are what is recorded."""
        return any(
            self._has_subclass(item)
            if isinstance(item, (tuple, list))
            else isinstance(item, torch.Tensor)
            and _desugars(type(item))
            and not (self._shapes is not None and isinstance(item, FakeTensor))
            for item in arguments
        )

    def _run_fake(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.note_unaudited(str(func), "fake tensor: shapes alone, runs no kernel")
        return func(*args, **kwargs)

    def _intercept(self, op: torch._ops.OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A composite, on its way from the program to autograd."""
        if isinstance(_get_current_dispatch_mode(), CountingMode):
            with _pop_mode_temporarily():  # see _off
                return run_composite(op, args, kwargs)
        if (
            self._suspended
            or not _is_innermost(self)
            or peek_interpreter_stack() is not None  # grad or vmap: the tensors are wrappers around the ones that count
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
        record = self._record(op, args, kwargs, grad=torch.is_grad_enabled())
        first_node = _next_node_number()
        with self._off():
            output = run(op, args, kwargs)
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
        GPU tensors with lengths on the CPU, which works untraced, raises on it.
        """
        self._suspended += 1
        try:
            if _get_current_dispatch_mode() is self:
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
            with _disable_current_modes() if _get_current_dispatch_mode_stack() else nullcontext():
                yield
        finally:
            self._suspended -= 1

    def _grad_sampler(self, record: Record) -> GradSampler | None:
        """Looks at the gradients of a call whose operands were looked at."""
        if self.values is None or not _is_power_of_two(record.n_calls):
            return None
        values = self.values

        def sample(output: int, grad: torch.Tensor) -> None:
            with self._looking():
                values.sample({0: grad}, record.kept_grads.setdefault(output, KeptCall()))

        return sample

    def _record(self, func: torch._ops.OpOverload, args: Any, kwargs: Any, grad: bool = False) -> Record | None:
        """Counts one call; None when it is not auditable or belongs to a composite's own backward."""
        place, phase = self._whereabouts()
        if phase is None:
            return None
        self._n_recorded += 1
        name, unaudited = self._names.get(func) or self._name(func)
        if unaudited:
            self._not_audited[name, unaudited] += 1
            return None
        accelerator = uses_accelerator(args, kwargs)
        folding = Folding(accelerator, grad)
        try:
            folded = folding.call(args, kwargs)
        except NotReplayable as reason:
            self._not_audited[name, str(reason)] += 1
            return None
        key = (func, phase, accelerator, folded)
        record = self._records.get(key)
        if record is None:
            record = self._records[key] = Record(name, folded, phase, accelerator, n_tensors=len(folding.tensors))
        record.n_calls += 1
        if len(record.modules) < MAX_PLACES:
            record.modules[place[0]] += 1
        if len(record.sources) < MAX_PLACES:
            record.sources[place[1]] += 1
        if self.values is not None and _is_power_of_two(record.n_calls):
            with self._looking():
                exact = _EXACT_POSITIONS.get(name, frozenset())
                self.values.sample(dict(enumerate(folding.tensors)), record.kept, exact)
        return record

    def _name(self, func: torch._ops.OpOverload) -> tuple[str, str]:
        """The qualified overload (``aten::mm.default``), and why its calls are no cases, or an empty string."""
        packet, overload = func.name(), func._overloadname
        name = packet if packet.endswith(f".{overload}") else f"{packet}.{overload}"
        self._names[func] = name, _unauditable(name)
        return self._names[func]

    def _whereabouts(self) -> tuple[tuple[str, str], Phase | None]:
        """(module, source line) and phase of the current call; phase None inside a composite's backward."""
        graph_task = torch._C._current_graph_task_id()
        if graph_task != self._graph_task:
            self._graph_task, self._graph_task_depth = graph_task, self.modules.depth
        # A module that was entered since backward began is being recomputed: that is forward work.
        if graph_task != -1 and self.modules.depth <= self._graph_task_depth:
            node = torch._C._current_autograd_node()
            number = node._sequence_nr() if node is not None else -1
            if self._backward.owns(number):
                return ("", ""), None
            return self._places.find(number) or ("", self._sources.current()), "backward"
        place = (self.modules.path, self._sources.current())
        if self._in_optimizer:
            return place, "optimizer"
        self._places.note(_next_node_number() - 1, place)
        return place, "forward"

    def note_unaudited(self, what: str, reason: str, counted: bool = True) -> None:
        """Names something that has no case. ``counted`` false: it is no recorded call (a compiled region)."""
        self._not_audited[what, reason] += int(counted)
        self._n_recorded += int(counted)

    def note(self, text: str) -> None:
        """Adds a sentence about how the trace was made."""
        self._notes.append(text)

    # --- the trace ---------------------------------------------------------------------------------------------

    def build(self, source: Source, environment: Mapping[str, str]) -> tuple[Trace, dict[str, Span]]:
        """The trace and the kept values by their names in the value file."""
        audited = self._audited_records()
        not_audited = Counter(self._not_audited)
        audited_ids = {id(record) for record in audited}
        for record in self._records.values():
            if id(record) not in audited_ids:
                not_audited[record.op, "ran on the CPU in the program"] += record.n_calls
        cases: dict[str, Case] = {}
        spans: dict[str, Span] = {}
        for record in audited:
            for case, case_spans in cases_of(record):
                cases[case.key] = folded_into(cases.get(case.key), case)
                spans.update({f"{case.key}/{position}": span for position, span in case_spans.items()})
        trace = Trace(
            source=source,
            environment=environment,
            cases=tuple(cases.values()),
            not_audited=tuple(NotAudited(*what, n) for what, n in sorted(not_audited.items())),
            n_recorded=self._n_recorded,
            notes=tuple(self._notes),
        )
        return trace, spans

    def _audited_records(self) -> list[Record]:
        """What becomes cases: where a GPU took part, its calls; a program that used none is audited whole."""
        records = list(self._records.values())
        return [record for record in records if record.on_accelerator] or records

    def vendor_ops(self) -> list[str]:
        """Ops in the trace that only one vendor's device, or only the CPU, has: composites that were missed."""
        return sorted({record.op for record in self._audited_records() if is_vendor_op(record.op)})


# --- one call ---------------------------------------------------------------------------------------------------


def _is_power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _next_node_number() -> int:
    """The number that the next autograd node made on this thread will get."""
    return torch._C._autograd._get_sequence_nr()


def _is_innermost(recorder: Recorder) -> bool:
    """Whether the recorder is on this thread's mode stack now (not on another thread, not inside its own work)."""
    return any(mode is recorder for mode in _get_current_dispatch_mode_stack())


@cache
def _desugars(cls: type) -> bool:
    """Whether tensors of this class handle dispatch themselves and lead to inner aten calls."""
    dispatch = getattr(cls, "__torch_dispatch__", None)
    return dispatch is not torch._C._disabled_torch_dispatch_impl and not issubclass(cls, torch.nn.Parameter)


def _has_special_form(arguments: tuple[Any, ...] | list[Any]) -> bool:
    """Whether a tensor among the arguments is nested, sparse or quantised.

    For these some composites (``matmul`` of nested tensors) have kernels of their own, and the composite would fail.
    """
    return any(
        _has_special_form(item)
        if isinstance(item, (tuple, list))
        else isinstance(item, torch.Tensor)
        and (item.is_nested or item.is_quantized or item.layout is not torch.strided)
        for item in arguments
    )


@cache
def _is_plain_composite(func: torch._ops.OpOverload) -> bool:
    return is_composite(func)


def _unauditable(name: str) -> str:
    """Why calls of this op are no cases, or an empty string."""
    if name.startswith(_ANNOTATIONS):
        return "annotation for profilers: computes nothing"
    if name.startswith(_PACKING):
        return "vendor's packing of weights: moves memory, and belongs to the RNN call that follows"
    if name.startswith(_COLLECTIVES):
        return "collective: needs the other ranks"
    if name.startswith("aten::from_file"):
        return "opens a file: it depends on no device"
    if not name.startswith("aten::"):
        return "not an aten op: it exists where its library was loaded, and has no reference"
    return ""


def _fold_grad(grad: torch.Tensor) -> Folded:
    try:
        return Folding(accelerator=False, grad=False).fold(grad)
    except NotReplayable:
        return None
