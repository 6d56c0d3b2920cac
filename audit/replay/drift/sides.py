"""One side of a step that is played: its tensors by their numbers on the tape, and how it runs a call.

Three sides play in lock-step: the device; the CPU in the program's own dtypes; the CPU in double precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from audit.codec import tensors_of
from audit.device.guarded import host_copy
from audit.device.protocol import Device
from audit.device.steering import steered
from audit.replay.execute import Produced, flatten, in_phase
from audit.replay.inputs import elements_of, named, torch_dtype
from audit.replay.on_cpu import cpu_op
from audit.replay.overload import resolve
from audit.replay.widen import wide_dtype, widened
from audit.schema import Arg, Case, Named, TensorSpec
from audit.tape import Again, Leaf, Memory, TapeCall

#: Ops that ask for a layout which the CPU's results have; where the device's have another, a program would have copied.
_VIEWS = ("aten::view.default", "aten::_unsafe_view.default")


@dataclass(frozen=True)
class Graph:
    """What the backward of a composite starts from."""

    operands: list[torch.Tensor]
    outputs: list[Produced]


def arguments(
    case: Case, tensors: Sequence[torch.Tensor], device: torch.device
) -> tuple[list[Any], dict[str, Any], list[torch.Tensor | None]]:
    """Arguments of a call on these tensors, and the gradients behind them."""
    waiting: Iterator[torch.Tensor] = iter(tensors)

    def build(arg: Arg) -> Any:
        if isinstance(arg, TensorSpec):
            return next(waiting)
        if isinstance(arg, Named):
            return named(arg, device, 0)
        return [build(item) for item in arg] if isinstance(arg, tuple) else arg

    args = [build(arg) for arg in case.args]
    kwargs = {name: build(arg) for name, arg in case.kwargs}
    return args, kwargs, [None if grad is None else next(waiting) for grad in case.grads or ()]


def run_once(
    call: TapeCall, op: Callable[..., Any], tensors: Sequence[torch.Tensor], device: torch.device, case: Case
) -> tuple[list[Produced], Graph | None]:
    """One call, with its forward before it where it is a backward; what it gives, and the graph where one is kept.

    ``case`` is that of the call, in double precision or as it is.
    """
    if call.graph is None and call.backward_of is None:
        args, kwargs, _ = arguments(case, tensors, device)
        with torch.no_grad():
            return flatten(_viewed(case, op, args, kwargs), case.op), None
    specs = tensors_of(case.args, case.kwargs)
    inner = [tensor.detach().requires_grad_(spec.requires_grad) for tensor, spec in zip(tensors, specs, strict=False)]
    with torch.enable_grad():
        args, kwargs, _ = arguments(replace(case, grads=None), inner, device)
        graph = Graph(inner, flatten(op(*args, **kwargs), case.op))
    if call.backward_of is None:
        return [Produced(item.name, detached(item.tensor)) for item in graph.outputs], graph
    return gradients(case, graph, tensors[len(inner) :]), None


def _viewed(case: Case, op: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """The op, but a copy where a view does not fit the strides at hand: there a program would have copied."""
    try:
        return op(*args, **kwargs)
    except RuntimeError as error:
        if case.op not in _VIEWS or "view size is not compatible" not in str(error):
            raise
        return args[0].reshape(args[1])


def gradients(case: Case, graph: Graph, arrived: Sequence[torch.Tensor]) -> list[Produced]:
    """The gradients of a composite's operands, None for those that want none."""
    waiting = iter(arrived)
    grads = [None if grad is None else next(waiting) for grad in case.grads or ()]
    tensors = [item.tensor for item in graph.outputs if item.tensor is not None]
    pairs = [(o, g) for o, g in zip(tensors, grads, strict=False) if g is not None and o.requires_grad]
    wanted = [operand for operand in graph.operands if operand.requires_grad]
    found = iter(
        torch.autograd.grad([o for o, _ in pairs], wanted, [g for _, g in pairs], retain_graph=True, allow_unused=True)
    )
    return [
        Produced(f"gradient of operand {position}", next(found) if operand.requires_grad else None)
        for position, operand in enumerate(graph.operands)
    ]


def detached(tensor: torch.Tensor | None) -> torch.Tensor | None:
    return None if tensor is None else tensor.detach()


class Side:
    """The CPU in the program's own dtypes; the other sides say what they do otherwise."""

    torch_device = torch.device("cpu")

    def __init__(self) -> None:
        self._memories: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}
        self._graphs: dict[int, Graph] = {}

    # --- tensors ---------------------------------------------------------------------------------------------------

    def remember(self, memory: Memory, content: torch.Tensor) -> None:
        """Takes a storage; ``content`` (1-D uint8) is copied."""
        self._memories[memory.memory] = content.clone()

    def see(self, leaf: Leaf) -> None:
        line = elements_of(self._memories[leaf.memory], torch_dtype(leaf.dtype))
        self._values[leaf.number] = line.as_strided(leaf.sizes, leaf.strides, leaf.offset)

    def see_again(self, again: Again) -> None:
        self._values[again.number] = self._values[again.of].as_strided(again.sizes, again.strides, again.offset)

    def operands(self, call: TapeCall) -> list[torch.Tensor]:
        return [self._values[number] for number in call.operands]

    def keep(self, call: TapeCall, produced: Sequence[Produced]) -> None:
        for number, item in zip(call.results, produced, strict=False):
            if number is not None and item.tensor is not None:
                self._values[number] = item.tensor

    def take(self, number: int, value: torch.Tensor) -> None:
        """A result that was made elsewhere: a plain CPU tensor, which this side may keep."""
        self._values[number] = value.clone()

    def write(self, number: int, value: torch.Tensor) -> None:
        """Writes what was made elsewhere into a tensor that is there."""
        self._values[number].copy_(value)

    def alias(self, number: int, of: int) -> None:
        self._values[number] = self._values[of]

    def drop(self, number: int) -> None:
        self._values.pop(number, None)

    def value(self, number: int) -> torch.Tensor:
        return self._values[number]

    # --- calls -----------------------------------------------------------------------------------------------------

    def case(self, call: TapeCall) -> Case:
        return call.case

    def operator(self, case: Case) -> Callable[..., Any]:
        return cpu_op(case)

    def run(self, call: TapeCall) -> list[Produced]:
        """Plays the call on this side's own tensors and keeps what it gives."""
        with steered(call.case.settings):
            produced = self._run(call)
        self.keep(call, produced)
        return produced

    def _run(self, call: TapeCall) -> list[Produced]:
        case = self.case(call)
        operands = self.operands(call)
        if call.backward_of is not None and call.backward_of in self._graphs:
            kept = self._graphs[call.backward_of]
            return gradients(case, kept, operands[len(kept.operands) :])
        produced, graph = run_once(call, self.operator(call.case), operands, self.torch_device, case)
        if graph is not None and call.graph is not None:
            self._graphs[call.graph] = graph
        return produced

    def drop_graph(self, number: int) -> None:
        self._graphs.pop(number, None)


class WideSide(Side):
    """The CPU in double precision: floating storages are widened once, whole, so that views go on sharing them."""

    def remember(self, memory: Memory, content: torch.Tensor) -> None:
        dtype = torch_dtype(memory.dtype)
        self._memories[memory.memory] = elements_of(content, dtype).to(wide_dtype(dtype), copy=True)

    def see(self, leaf: Leaf) -> None:
        line = self._memories[leaf.memory]
        if line.dtype == wide_dtype(torch_dtype(leaf.dtype)):
            self._values[leaf.number] = line.as_strided(leaf.sizes, leaf.strides, leaf.offset)

    def take(self, number: int, value: torch.Tensor) -> None:
        self._values[number] = value.to(wide_dtype(value.dtype), copy=True)

    def case(self, call: TapeCall) -> Case:
        return widened(call.case)

    def operator(self, case: Case) -> Callable[..., Any]:
        return resolve(case.op)


class DeviceSide(Side):
    """The device that is audited. Its results keep the strides that it gives them."""

    def __init__(self, device: Device) -> None:
        super().__init__()
        self._device = device
        self.torch_device = device.torch_device
        self._hosts: set[int] = set()
        self._host_values: set[int] = set()

    def remember(self, memory: Memory, content: torch.Tensor) -> None:
        if memory.host:
            self._hosts.add(memory.memory)
            super().remember(memory, content)
            return
        dtype = torch_dtype(memory.dtype)
        n = content.numel() // dtype.itemsize
        self._memories[memory.memory] = self._device.buffer(content).view(dtype, (n,), (1,), 0)

    def see(self, leaf: Leaf) -> None:
        if leaf.memory in self._hosts:
            self._host_values.add(leaf.number)
            super().see(leaf)
            return
        line, dtype = self._memories[leaf.memory], torch_dtype(leaf.dtype)
        if line.dtype != dtype:
            line = line.view(dtype)
        self._values[leaf.number] = line.as_strided(leaf.sizes, leaf.strides, leaf.offset)

    def see_again(self, again: Again) -> None:
        if again.of in self._host_values:
            self._host_values.add(again.number)
        super().see_again(again)

    def operands(self, call: TapeCall) -> list[torch.Tensor]:
        """A result that was left on the CPU, where the program has it on the device, is brought there first."""
        for number in call.operands:
            value = self._values[number]
            if value.device.type != self.torch_device.type and number not in self._host_values and value.dim():
                self._values[number] = self.put(host_copy(value))
        return super().operands(call)

    def take(self, number: int, value: torch.Tensor) -> None:
        self._values[number] = self.put(value)

    def put(self, value: torch.Tensor) -> torch.Tensor:
        """A plain CPU tensor in fresh memory of the device, with its strides."""
        return on_device(self._device, value)

    def operator(self, case: Case) -> Callable[..., Any]:
        return resolve(case.op)

    def _run(self, call: TapeCall) -> list[Produced]:
        self._device.begin_case(call.case.op, call.case.phase)
        produced = in_phase(call.case.phase, call.case, lambda: super(DeviceSide, self)._run(call))
        self._device.synchronize()
        return produced


def on_device(device: Device, value: torch.Tensor) -> torch.Tensor:
    """A CPU tensor whose storage begins with it, as ``host_copy`` gives it, in fresh memory with the same strides."""
    span = 0 if 0 in value.shape else 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True))
    line = value.as_strided((span,), (1,), value.storage_offset()).contiguous()
    content = line.view(torch.uint8) if span else torch.empty(0, dtype=torch.uint8)
    return device.buffer(content).view(value.dtype, tuple(value.shape), tuple(value.stride()), 0)
