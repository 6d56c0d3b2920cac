"""The program's modules as a tree: cases rolled up, worst status first, device time shared among those that call."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from audit.report.legend import READING_ORDER
from audit.report.rows import CaseRow
from audit.rules.coverage import worst
from audit.rules.lost_time import OPTIMIZER, OUTSIDE
from audit.schema import Status


@dataclass
class _Growing:
    """A node while rows are put in. ``rows`` by key; ``own`` are those called in this module itself."""

    path: tuple[str, ...]
    children: dict[str, _Growing] = field(default_factory=dict)
    rows: dict[str, CaseRow] = field(default_factory=dict)
    own: dict[str, CaseRow] = field(default_factory=dict)
    us: float = 0.0
    n_calls: float = 0.0


@dataclass(frozen=True)
class Node:
    """A module, all within it rolled up. ``path`` is its dotted name, ``name`` the last piece of it.

    ``us`` is device time and ``n_calls`` calls of all steps: a case that several modules call counts in each with an
    equal part. ``own`` are the cases called here and in no module within, worst first.
    """

    path: str
    name: str
    anchor: str
    status: Status
    n_by_status: tuple[tuple[Status, int], ...]
    n_cases: int
    n_calls: float
    us: float
    own: tuple[CaseRow, ...]
    children: tuple[Node, ...]


def module_tree(rows: Iterable[CaseRow]) -> tuple[Node, ...]:
    """The outermost modules, dearest first. Layers that differ by their number alone are one: ``layers.*``."""
    root = _Growing(())
    for row in rows:
        places = modules_of(row)
        share = 1.0 / len(places)
        for place in places:
            _put(root, place, row, share)
    return _ordered(root)


def modules_of(row: CaseRow) -> list[tuple[str, ...]]:
    """Where a case is called, in pieces; what is outside of modules and in the optimizer have a name too."""
    if row.verdict.phase == "optimizer":
        return [(OPTIMIZER,)]
    paths = dict.fromkeys(
        tuple("*" if piece.isdecimal() else piece for piece in module.split(".") if piece)
        for module in row.verdict.modules
    )
    return [path for path in paths if path] or [(OUTSIDE,)]


def _put(root: _Growing, place: tuple[str, ...], row: CaseRow, share: float) -> None:
    node = root
    for depth in range(len(place) + 1):
        if depth:
            node = node.children.setdefault(place[depth - 1], _Growing(place[:depth]))
        node.rows[row.anchor] = row
        node.us += (row.total_us or 0.0) * share
        node.n_calls += row.verdict.n_calls * share
    node.own[row.anchor] = row


def _ordered(node: _Growing) -> tuple[Node, ...]:
    made = [_made(child) for child in node.children.values()]
    return tuple(sorted(made, key=lambda child: (-child.us, -child.n_calls, child.path)))


def _made(node: _Growing) -> Node:
    """A lone child without cases beside it is one line with its parent: ``model.layers.*``."""
    path = node.path
    rows = list(node.rows.values())
    while len(node.children) == 1 and not node.own:
        node = next(iter(node.children.values()))
    name = ".".join(node.path[len(path) - 1 :])
    counts = tuple((s, n) for s in READING_ORDER if (n := sum(row.status == s for row in rows)))
    dotted = ".".join(node.path)
    anchor = "mod-" + hashlib.sha256(dotted.encode("utf-8", "replace")).hexdigest()[:10]
    own = tuple(sorted(node.own.values(), key=lambda row: (READING_ORDER.index(row.status), -(row.total_us or 0.0))))
    return Node(
        dotted, name, anchor, worst(row.status for row in rows), counts, len(rows), node.n_calls, node.us, own,
        _ordered(node),
    )  # fmt: skip
