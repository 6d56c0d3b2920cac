"""Links a composite call to its backward: which autograd nodes are its own, and the gradients that reach them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import torch

from audit.tracer.transforms import unbatched

#: AccumulateGrad and other nodes that the engine makes have this number (2**64 - 1).
_UNNUMBERED = (1 << 64) - 1
#: Composites with more nodes than this (RNNs) are recognised by number alone. In a small one each node also says when
#: it is done, so that the engine's own accumulation behind it is not taken for the composite's work.
_MAX_WATCHED_NODES = 64

#: Of a gradient: the number of its output, how it is folded, itself.
GradSampler = Callable[[int, Any, torch.Tensor], None]


class CompositeCall:
    """One composite call under autograd; ``grads`` fills when its backward runs: output number -> gradient."""

    __slots__ = ("grads", "n_outputs")

    def __init__(self, n_outputs: int) -> None:
        self.n_outputs = n_outputs
        self.grads: dict[int, Any] = {}


class BackwardLinks:
    """The node numbers of every composite call, as disjoint rising intervals."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._finished = -1

    def owns(self, number: int) -> bool:
        """Whether the node with this sequence number, now running, is doing a composite's backward."""
        if number < 0 or number == self._finished:
            return False
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def follow(
        self,
        output: Any,
        first: int,
        end: int,
        fold: Callable[[torch.Tensor], Any],
        sample: GradSampler | None,
    ) -> CompositeCall | None:
        """Claims the nodes numbered from ``first`` to before ``end``; hooks them without changing any value."""
        outputs = list(_tensors(output))
        if not any(tensor.grad_fn is not None for tensor in outputs):
            return None
        if not self._starts or first >= self._ends[-1]:
            self._starts.append(first)
            self._ends.append(end)
        call = CompositeCall(len(outputs))

        def disown() -> None:
            """Its backward has no case: what it runs is recorded like any other."""
            if (index := bisect_right(self._starts, first) - 1) >= 0 and self._starts[index] == first:
                del self._starts[index], self._ends[index]

        for number, tensor in enumerate(outputs):
            if tensor.grad_fn is not None:
                tensor.grad_fn.register_prehook(_grad_hook(call, number, tensor.output_nr, fold, sample, disown))
        nodes = set(_own_nodes(outputs, first, end))
        if len(nodes) <= _MAX_WATCHED_NODES:
            for node in nodes:
                # Gradients that a node hands to another of the composite's are summed inside the composite.
                if any(parent is not None and parent not in nodes for parent, _ in node.next_functions):
                    node.register_hook(self._finish_hook(node._sequence_nr()))
        return call

    def _finish_hook(self, number: int) -> Callable[[Any, Any], None]:
        def finished(grad_inputs: Any, grad_outputs: Any) -> None:
            self._finished = number

        return finished


def _grad_hook(
    call: CompositeCall,
    number: int,
    output_nr: int,
    fold: Callable[[torch.Tensor], Any],
    sample: GradSampler | None,
    disown: Callable[[], None],
) -> Callable[[Any], None]:
    def arrived(grad_outputs: Any) -> None:
        grad = grad_outputs[output_nr] if output_nr < len(grad_outputs) else None
        if isinstance(grad, torch.Tensor) and number not in call.grads:
            bare = unbatched(grad)
            if bare is None:
                disown()
                return
            call.grads[number] = fold(bare)
            if sample is not None:
                sample(number, call.grads[number], bare)

    return arrived


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (list, tuple)):
        for item in output:
            yield from _tensors(item)


def _own_nodes(outputs: list[torch.Tensor], first: int, end: int) -> Iterator[Any]:
    """The nodes made by the call: a walk back from its outputs that stops at older ones."""
    seen: set[Any] = set()
    waiting = [tensor.grad_fn for tensor in outputs if tensor.grad_fn is not None]
    while waiting and len(seen) <= _MAX_WATCHED_NODES:
        node = waiting.pop()
        number = node._sequence_nr()
        if node in seen or number == _UNNUMBERED or not first <= number < end:
            continue
        seen.add(node)
        yield node
        waiting.extend(parent for parent, _ in node.next_functions if parent is not None)
