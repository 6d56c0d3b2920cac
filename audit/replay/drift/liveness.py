"""When each tensor of a tape is used last, so that no side holds more than the program did."""

from __future__ import annotations

from collections.abc import Iterable

from audit.tape import Again, Record, TapeCall


def last_backwards(records: Iterable[Record]) -> dict[int, list[int]]:
    """Graphs of composites by the index of the call after which no backward asks for them."""
    last: dict[int, int] = {}
    index = 0
    for record in records:
        if isinstance(record, TapeCall):
            graph = record.graph if record.backward_of is None else record.backward_of
            if graph is not None:
                last[graph] = index
            index += 1
    by_call: dict[int, list[int]] = {}
    for graph, at in last.items():
        by_call.setdefault(at, []).append(graph)
    return by_call


def last_uses(records: Iterable[Record]) -> tuple[dict[int, list[int]], int]:
    """Numbers of tensors by the index of the call after which nobody asks for them, and the number of calls."""
    last: dict[int, int] = {}
    index = 0
    for record in records:
        if isinstance(record, Again):
            last[record.of] = index
        elif isinstance(record, TapeCall):
            for number in (*record.operands, *(n for n in record.results if n is not None)):
                last[number] = index
            index += 1
    by_call: dict[int, list[int]] = {}
    for number, at in last.items():
        by_call.setdefault(at, []).append(number)
    return by_call, index
