"""Records a step on a tape: every call with its tensors, so that it can be played on a device and in fp64.

The program runs as for a trace, on the CPU, and its calls are seen where a trace sees them. A composite that is taken
whole is one call on the tape, and its backward another: it runs as one autograd node of ours. Random calls, and those
that no other device has, are fed from what the program's own run gave.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.utils._pytree import tree_flatten, tree_unflatten

from audit.codec import case_key
from audit.device.steering import in_force
from audit.schema import Case, Phase, TensorSpec
from audit.tape import TapeCall
from audit.tracer import virtual_gpu
from audit.tracer.composites import Interceptor, is_vendor_op, run_composite
from audit.tracer.forms import desugars
from audit.tracer.layouts import ATTENTION, run_attention
from audit.tracer.recorder import Recorder
from audit.tracer.recording import Recording
from audit.tracer.signature import Folding, NotReplayable, call_to_args, to_arg, uses_accelerator
from audit.tracer.tape_writer import TapeWriter, magnitudes
from audit.tracer.transforms import is_transformed
from audit.tracer.unaudited import qualified_name, reason_for

#: Random: the program's own draws are fed.
DRAWN = "random: the program's own numbers are fed"
#: Not to be had elsewhere, or not to be called from a file.
FOREIGN = "only the program's process has this op: what it gave there is fed"


class Taping(Recording):
    """The mode of one thread; ``tape`` gets what happens while the recording is open."""

    tape: TapeWriter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self._is_call(func, types):
            return super().__torch_dispatch__(func, types, args, kwargs)
        accelerator = uses_accelerator(args, kwargs)
        if not self.tape_takes(accelerator):
            return super().__torch_dispatch__(func, types, args, kwargs)
        begun = self._begun(func, args, kwargs, accelerator)
        output = super().__torch_dispatch__(func, types, args, kwargs)
        if begun is not None:
            self._written(func, begun, args, kwargs, output)
        return output

    def _is_call(self, func: Any, types: Any) -> bool:
        """Whether the op itself runs now, and not what stands for it or what it is made of."""
        if self._suspended or not self.ledger.open or not isinstance(func, torch._ops.OpOverload):
            return False
        if func.namespace == "prim" or (types and any(desugars(cls) for cls in types)):
            return False
        return (self._handling.get(func) or self._handle(func)).run is None

    def tape_takes(self, accelerator: bool) -> bool:
        """Calls on the CPU are part of the step until the program uses its GPU; then the tape begins anew."""
        if accelerator and not self._on_device:
            self._owner.begin_on_device()
        return accelerator or not self._on_device

    @property
    def _on_device(self) -> bool:
        return self._owner.on_device

    _owner: TapeRecorder

    # --- plain calls -----------------------------------------------------------------------------------------------

    def _begun(
        self, func: Any, args: Any, kwargs: Any, accelerator: bool, graph: bool = False
    ) -> tuple[Case, list[int], tuple[str, str]] | None:
        """The call with the numbers of its operands, whose values are kept before they are written."""
        place, phase, _ = self._whereabouts()
        folding = Folding(accelerator, graph)
        try:
            folded = folding.call(args, kwargs)
        except NotReplayable:  # a mark for profilers has no tensor, and is nothing to see
            leaves = _flattened([*args, *kwargs.values()])
            self.tape.n_unseen += any(isinstance(leaf, torch.Tensor) for leaf in leaves)
            return None
        schema_args, schema_kwargs = call_to_args(folded)
        name = qualified_name(func)
        case = _case(name, schema_args, schema_kwargs, phase or "backward", in_force(name))
        with self._looking():
            numbers = self._taken(folding.tensors, accelerator)
        return case, numbers, place

    def _taken(self, tensors: Sequence[torch.Tensor], accelerator: bool) -> list[int]:
        return [self.tape.taken(tensor, accelerator and _is_host(tensor)) for tensor in tensors]

    def _written(
        self, func: Any, begun: tuple[Case, list[int], tuple[str, str]], args: Any, kwargs: Any, output: Any
    ) -> None:
        case, operands, (module, source) = begun
        with self._looking():
            written = list(_written_operands(func, args, kwargs))
            outputs = _flattened(output)
            results = tuple(self.tape.given(item) if _is_plain(item) else None for item in outputs)
            if not any(results) and not written:
                return  # a question, whose answer is a number in the calls that follow
            made = [(n, t) for n, t in zip(results, outputs, strict=True) if n is not None]
            made += [(self.tape.taken(t, False), t) for t in written if not any(t is other for _, other in made)]
            why = _why_fed(func, case)
            fed = tuple(self.tape.fed(tensor, number) for number, tensor in made) if why else ()
            seen = () if _is_uninitialised(func) else magnitudes(made)
            self.tape.call(
                TapeCall(case, tuple(operands), results, module, source, fed=fed, why_fed=why, magnitudes=seen)
            )

    # --- composites ------------------------------------------------------------------------------------------------

    def _record_composite(
        self,
        op: torch._ops.OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        run: Interceptor = run_composite,
    ) -> Any:
        accelerator = uses_accelerator(args, kwargs)
        if not self.tape_takes(accelerator):
            return super()._record_composite(op, args, kwargs, run)
        if is_transformed() or _draws(op, args, kwargs):
            return self._in_parts(op, args, kwargs, run)
        graph = torch.is_grad_enabled()
        begun = self._begun(op, args, kwargs, accelerator, graph)
        if begun is None:
            return super()._record_composite(op, args, kwargs, run)
        leaves, spec = tree_flatten((list(args), kwargs))
        node = _Composite(self, op, run, spec, leaves, accelerator, begun)
        outputs = _Node.apply(node, *[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        return node.arranged(outputs)

    def _in_parts(self, op: Any, args: Any, kwargs: Any, run: Interceptor) -> Any:
        """Attention by its definition: the CPU's own fused kernel is no part that another device has."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH):
            if run is run_composite:
                return run(op, args, kwargs)
            with self:  # under inference mode it came here through this mode, which is off meanwhile
                return run(op, args, kwargs)


class _Composite:
    """One call of a composite that is taken whole: run below a single node, its backward another call."""

    def __init__(
        self,
        taping: Taping,
        op: torch._ops.OpOverload,
        run: Interceptor,
        spec: Any,
        leaves: list[Any],
        accelerator: bool,
        begun: tuple[Case, list[int], tuple[str, str]],
    ) -> None:
        self._taping, self._op, self._run, self._spec, self._leaves = taping, op, run, spec, leaves
        self._accelerator = accelerator
        self._case, self._operands, self._place = begun
        self._number = 0
        self._result: tuple[list[Any], Any] = ([], None)

    def forward(self, tensors: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Inner operands and outputs, on a graph of their own."""
        graph = torch.is_inference_mode_enabled() is False and any(t.requires_grad for t in tensors)
        taping = self._taping
        with taping._off(), torch.set_grad_enabled(graph):
            inner = [t.detach().requires_grad_(t.requires_grad) for t in tensors] if graph else list(tensors)
            waiting = iter(inner)
            leaves = [next(waiting) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._leaves]
            args, kwargs = tree_unflatten(leaves, self._spec)
            if self._op is ATTENTION and self._accelerator and virtual_gpu.is_active():
                output = run_attention(self._run, tuple(args), kwargs)
            else:
                output = self._run(self._op, tuple(args), kwargs)
        if self._accelerator and virtual_gpu.is_active():
            virtual_gpu.mark_results(self._op, output)
        flat, spec = tree_flatten(output)
        self._result = (flat, spec)
        return inner, [item for item in flat if isinstance(item, torch.Tensor)]

    def note_forward(self, outputs: Sequence[torch.Tensor], graph: bool) -> None:
        taping = self._taping
        with taping._looking():
            waiting = iter(outputs)
            results = tuple(
                taping.tape.given(next(waiting)) if isinstance(item, torch.Tensor) else None for item in self._result[0]
            )
            made = list(zip([n for n in results if n is not None], outputs, strict=True))
            self._number = taping.tape.n_calls
            module, source = self._place
            taping.tape.call(
                TapeCall(
                    self._case, tuple(self._operands), results, module, source,
                    graph=self._number if graph else None, magnitudes=magnitudes(made),
                )
            )  # fmt: skip

    def arranged(self, outputs: Any) -> Any:
        flat, spec = self._result
        waiting = iter(outputs if isinstance(outputs, tuple) else (outputs,))
        return tree_unflatten([next(waiting) if isinstance(item, torch.Tensor) else item for item in flat], spec)

    def backward(
        self, inner: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], grads: Sequence[torch.Tensor | None]
    ) -> list[torch.Tensor | None]:
        """Gradients of the operands, noted as a call of its own."""
        taping = self._taping
        arrived = [g for g in grads if g is not None]
        folding = Folding(self._accelerator, False)
        specs = [None if g is None else to_arg(folding.fold(g)) for g in grads]
        with taping._looking():
            numbers = taping._taken(arrived, self._accelerator)
        with taping._off(), torch.enable_grad():
            pairs = [(o, g) for o, g in zip(outputs, grads, strict=True) if g is not None and o.requires_grad]
            wanted = [t for t in inner if t.requires_grad]
            found = torch.autograd.grad(
                [o for o, _ in pairs], wanted, [g for _, g in pairs], retain_graph=True, allow_unused=True
            )
        if self._accelerator and virtual_gpu.is_active():
            virtual_gpu.put_on_gpu([g for g in found if g is not None])
        waiting = iter(found)
        gradients = [next(waiting) if t.requires_grad else None for t in inner]
        with taping._looking():
            results = tuple(None if g is None else taping.tape.given(g) for g in gradients)
            made = [(n, g) for n, g in zip(results, gradients, strict=True) if n is not None and g is not None]
            case = _with_grads(self._case, specs)
            module, source = self._place
            taping.tape.call(
                TapeCall(
                    case, (*self._operands, *numbers), results, module, source,
                    backward_of=self._number, magnitudes=magnitudes(made),
                )
            )  # fmt: skip
        return gradients


class _Node(torch.autograd.Function):
    """The one autograd node of a composite on a tape."""

    @staticmethod
    def forward(ctx: Any, composite: _Composite, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        inner, outputs = composite.forward(tensors)
        graph = any(output.requires_grad for output in outputs)
        with composite._taping.paused():
            given = tuple(output.detach() for output in outputs) if graph else tuple(outputs)
        composite.note_forward(given, graph)
        ctx.composite, ctx.inner, ctx.outputs = composite, inner, outputs
        ctx.mark_non_differentiable(*[g for g, o in zip(given, outputs, strict=True) if not o.requires_grad])
        ctx.set_materialize_grads(False)
        return given

    @staticmethod
    @once_differentiable  # a gradient of a gradient would be wrong, and not raise
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        if all(grad is None for grad in grads):
            return (None, *[None for _ in ctx.inner])
        return (None, *ctx.composite.backward(ctx.inner, ctx.outputs, grads))


class TapeRecorder(Recorder):
    """A recorder whose calls go on a tape."""

    def __init__(self, tape: TapeWriter) -> None:
        super().__init__(None)
        self.tape = tape
        self.on_device = False
        self.full = False

    def begin_on_device(self) -> None:
        """What the program did before it used its GPU is no part of the step."""
        self.on_device = True
        self.tape.restart()

    def reset(self) -> None:
        super().reset()
        self.on_device = False
        self.tape.restart()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        taping = Taping(self._ledger, None, self.modules.here(), self._sources, self._composites, None)
        taping.tape, taping._owner = self.tape, self
        with torch.autograd.set_multithreading_enabled(False), taping:
            yield


# --- one call ------------------------------------------------------------------------------------------------------


def _case(op: str, args: Any, kwargs: Any, phase: Phase, settings: Any) -> Case:
    return Case(case_key(op, args, kwargs, phase, None, settings), op, args, kwargs, phase, settings=settings)


def _with_grads(case: Case, specs: Sequence[Any]) -> Case:
    """The case that a trace makes of the composite and its backward together, so that both have one key."""
    position = len(list(_specs(case)))
    grads: list[TensorSpec | None] = []
    for spec in specs:
        if not isinstance(spec, TensorSpec):
            grads.append(None)
            continue
        grads.append(TensorSpec(**{**spec.__dict__, "storage": position}))
        position += 1
    key = case_key(case.op, case.args, case.kwargs, case.phase, tuple(grads), case.settings)
    return Case(key, case.op, case.args, case.kwargs, case.phase, tuple(grads), case.settings)


def _specs(case: Case) -> Iterator[TensorSpec]:
    from audit.codec import tensors_of

    yield from tensors_of(case.args, case.kwargs)


def _is_host(tensor: torch.Tensor) -> bool:
    """Whether the operand of a call on the GPU is a number of the host."""
    if virtual_gpu.is_active():
        return tensor.dim() == 0 and not virtual_gpu.is_beside_gpu(tensor.untyped_storage())
    return not tensor.is_cuda


def _is_plain(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout is torch.strided and not item.is_quantized


def _flattened(output: Any) -> list[Any]:
    """Outputs in the order of the schema, lists in place."""
    if isinstance(output, (tuple, list)):
        return [leaf for item in output for leaf in _flattened(item)]
    return [output]


def _written_operands(func: torch._ops.OpOverload, args: Any, kwargs: Any) -> Iterator[torch.Tensor]:
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = kwargs.get(argument.name, args[position] if position < len(args) else None)
        yield from (leaf for leaf in _flattened(value) if isinstance(leaf, torch.Tensor))


def _why_fed(func: torch._ops.OpOverload, case: Case) -> str:
    name = qualified_name(func)
    if torch.Tag.nondeterministic_seeded in func.tags and not _is_sure(func, case):
        return DRAWN
    return FOREIGN if is_vendor_op(name) or reason_for(func) else ""


def _is_sure(func: torch._ops.OpOverload, case: Case) -> bool:
    """Whether a call that may draw numbers draws none: its chance is nought."""
    names = [argument.name for argument in func._schema.arguments]
    given = {**dict(zip(names, case.args, strict=False)), **dict(case.kwargs)}
    defaults = {a.name: a.default_value for a in func._schema.arguments if a.has_default_value()}
    chances = [{**defaults, **given}.get(name) for name in ("dropout_p", "dropout") if name in names]
    return bool(chances) and all(chance == 0 for chance in chances)


def _is_uninitialised(func: torch._ops.OpOverload) -> bool:
    return func._schema.name.removeprefix("aten::").startswith(("empty", "new_empty", "resize"))


def _draws(op: torch._ops.OpOverload, args: Any, kwargs: Any) -> bool:
    """Whether a composite has to go on in parts, so that its random numbers can be the program's."""
    if op._schema.name == "aten::dropout":
        return True  # native_dropout of a GPU draws for itself
    given = dict(zip((argument.name for argument in op._schema.arguments), args, strict=False)) | kwargs
    return bool(given.get("dropout_p", given.get("dropout", 0.0))) and given.get("train", True) is True
