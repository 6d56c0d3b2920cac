"""Execution traces of ``torch.profiler.ExecutionTraceObserver``: the tree of all calls of a program, with arguments.

What becomes a case is what the tracer would have recorded: the outermost call that has a kernel of its own, or a
composite that chooses by device, taken whole. What it calls in turn is its implementation on the recording device.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from audit.errors import UsageError
from audit.importers.account import MAX_ENTRIES, Account
from audit.importers.event_stream import EventStream
from audit.importers.execution_call import Call, call_of
from audit.importers.execution_node import Node, NodeError, node_of
from audit.schema import Arg, Phase, Source, Trace
from audit.tracer.unaudited import ON_HOST

KIND = "execution trace, values synthesised"
#: Nodes of one trace; each takes some 200 bytes until the end, when it is known what called what.
MAX_NODES = 1 << 22
_PHASES: Sequence[tuple[str, Phase]] = (
    ("autograd::engine::evaluate_function", "backward"),
    ("Optimizer.step#", "optimizer"),
)
_ROUNDED = "the recorder keeps floats to six decimals: an epsilon of 1e-12 reads 0.0"
#: Floats below this lose more than a part in a thousand of themselves so.
_LEAST_EXACT = 1e-3


def read_recording(path: Path) -> Trace:
    """The calls of the program as cases. Raises UsageError for a file that is no such trace, damaged or too large."""
    tree = _Tree(path)
    nodes = EventStream(path, "nodes")
    for item in nodes:
        try:
            tree.add(node_of(item))
        except NodeError as error:
            raise UsageError(f"{path} is no execution trace: {error}", "unreadable-recording") from error
    if nodes.cut_off:  # its last calls are those in which all others were made
        raise UsageError(f"cannot read {path}: {nodes.cut_off}; record it again", "unreadable-recording")
    account = Account(str(path))
    tree.enter(account)
    return account.trace(Source(KIND, path.name), {}, tree.notes())


class _Tree:
    """Who called whom. A node stands behind the calls that it made, so what counts is known only at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._parents: dict[int, int] = {}
        self._phases: dict[int, Phase] = {}
        self._whole: set[int] = set()
        self._made: list[tuple[int, int]] = []  # numbers of nodes, and of their calls in the list of distinct ones
        self._distinct: list[Call] = []
        self._numbers: dict[str, int] = {}

    def add(self, node: Node) -> None:
        if len(self._parents) >= MAX_NODES or len(self._distinct) > MAX_ENTRIES:
            raise UsageError(
                f"{self._path} has more than {MAX_NODES} nodes, or {MAX_ENTRIES} distinct calls; record fewer steps",
                "too-large-recording",
            )
        self._parents[node.number] = node.parent
        phase = next((phase for beginning, phase in _PHASES if node.name.startswith(beginning)), None)
        if phase is not None:
            self._phases[node.number] = phase
        call = call_of(node)
        if call is None:
            return
        if call.whole:
            self._whole.add(node.number)
        self._made.append((node.number, self._number_of(call)))

    def _number_of(self, call: Call) -> int:
        """Its place among the distinct calls. By its text: 1, 1.0 and True are equal, and different arguments."""
        number = self._numbers.setdefault(repr(call), len(self._distinct))
        if number == len(self._distinct):
            self._distinct.append(call)
        return number

    def enter(self, account: Account) -> None:
        """Counts each call that is no part of another one. Raises UsageError."""
        counted: Counter[tuple[int, Phase]] = Counter()
        above: dict[int, tuple[bool, Phase | None]] = {}
        for node, number in self._made:
            is_part, phase = self._above(self._parents[node], above)
            if not is_part:
                counted[number, phase or "forward"] += 1
        uses_accelerator = any(self._distinct[number].accelerator for number, _ in counted)
        for (number, phase), n_calls in counted.items():
            call = self._distinct[number]
            on_host = uses_accelerator and not call.accelerator and call.whole
            reason = call.reason or (ON_HOST if on_host else "")
            if reason:
                account.name_call(call.op, reason, n_calls)
            else:
                account.call(call.op, call.args, call.kwargs, n_calls, phase)

    def _above(self, number: int, known: dict[int, tuple[bool, Phase | None]]) -> tuple[bool, Phase | None]:
        """Whether the node or one above it is taken whole, and the nearest phase. The root is its own parent."""
        way: list[int] = []
        seen: set[int] = set()
        while number not in known and number in self._parents and number not in seen:
            way.append(number)
            seen.add(number)
            number = self._parents[number]
        is_part, phase = known.get(number, (False, None))
        for step in reversed(way):
            is_part, phase = is_part or step in self._whole, self._phases.get(step, phase)
            known[step] = is_part, phase
        return is_part, phase

    def notes(self) -> tuple[str, ...]:
        rounded = any(_has_small_float((*call.args, *(arg for _, arg in call.kwargs))) for call in self._distinct)
        return (f"{len(self._parents)} nodes", *((_ROUNDED,) if rounded else ()))


def _has_small_float(args: Iterable[Arg]) -> bool:
    return any(
        _has_small_float(arg) if isinstance(arg, tuple) else isinstance(arg, float) and abs(arg) < _LEAST_EXACT
        for arg in args
    )
