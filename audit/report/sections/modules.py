"""The step by module: an icicle of its time and a tree with statuses rolled up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.report import text
from audit.report.legend import STATUS_TEXTS
from audit.report.rows import CaseRow
from audit.report.sections.module_tree import Node, module_tree
from audit.report.sections.section import Material, Section, titled
from audit.schema import Status

WIDTH, ROW = 960.0, 27.0
#: Below so many units of width a piece has no name, and below so few it is not drawn.
NAMED_WIDTH, LEAST_WIDTH = 34.0, 0.6
MAX_DEPTH = 7
#: About so many units a letter is wide.
LETTER = 6.4
#: Links to cases in a module, and modules in the tree; the table of operators has all.
MAX_LINKS, MAX_NODES = 24, 600


@dataclass(frozen=True)
class Piece:
    """A module in the icicle, in the units of the drawing; ``label`` says all of it, ``name`` what fits."""

    node: Node
    status: Status
    x: float
    y: float
    width: float
    name: str
    label: str


@dataclass(frozen=True)
class Leaf:
    """Cases of one op with one status, called in a module itself: ``n`` of them, the first of which is ``anchor``."""

    status: Status
    op: str
    anchor: str
    n: int


@dataclass(frozen=True)
class Modules:
    """``unit`` is what widths mean: ``us`` where there are times, else ``calls``. ``n_left`` modules are not listed."""

    pieces: tuple[Piece, ...]
    height: float
    tree: tuple[Node, ...]
    unit: str
    total: float
    n_steps: int
    left: frozenset[str]


def modules(material: Material) -> Modules | None:
    """None where no case is called in a module."""
    tree = module_tree(material.rows)
    if not any(row.verdict.modules for row in material.rows):
        return None
    unit = "us" if any(node.us for node in tree) else "calls"
    total = sum(_amount(node, unit) for node in tree)
    n_steps = max(material.judgement.run.header.source.n_steps or 1, 1)
    drawing = _Drawing(unit, total, n_steps, WIDTH / total if total else 0.0)
    pieces = tuple(_pieces(tree, 0.0, 0, drawing))
    depth = max((piece.y for piece in pieces), default=0.0)
    return Modules(pieces, depth + ROW, tree, unit, total, n_steps, _beyond_budget(tree))


def leaves(node: Node) -> list[Leaf]:
    """Worst first, as the cases are."""
    groups: dict[tuple[Status, str], list[CaseRow]] = {}
    for row in node.own:
        groups.setdefault((row.status, text.short_op(row.verdict.op)), []).append(row)
    return [Leaf(status, op, members[0].anchor, len(members)) for (status, op), members in groups.items()]


def _amount(node: Node, unit: str) -> float:
    return node.us if unit == "us" else node.n_calls


@dataclass(frozen=True)
class _Drawing:
    """What all pieces share: their unit, the total of all steps, the number of these, and units of width for one."""

    unit: str
    total: float
    n_steps: int
    scale: float


def _pieces(nodes: tuple[Node, ...], x: float, depth: int, drawing: _Drawing) -> Iterator[Piece]:
    """Each module above those within it; what it does itself is the gap to its right."""
    for node in sorted(nodes, key=lambda one: -_amount(one, drawing.unit)):
        width = _amount(node, drawing.unit) * drawing.scale
        if width >= LEAST_WIDTH:
            yield _piece(node, x, depth, width, drawing)
            if depth + 1 < MAX_DEPTH:
                yield from _pieces(node.children, x, depth + 1, drawing)
        x += width


def _piece(node: Node, x: float, depth: int, width: float, drawing: _Drawing) -> Piece:
    mark = "" if node.status in ("supported", "inconclusive") else f"{STATUS_TEXTS[node.status].mark} "
    room = int((width - 8) / LETTER) - len(mark)
    name = text.one_line(node.name, max(room, 1)) if width >= NAMED_WIDTH and room >= 3 else ""
    amount = _amount(node, drawing.unit)
    a_step = amount / drawing.n_steps
    shown = text.time_text(a_step) if drawing.unit == "us" else text.plural(round(a_step), "call")
    label = (
        f"{text.one_line(node.path, 160)}: {shown} a step, {text.share_text(amount, drawing.total)}; "
        f"{text.plural(node.n_cases, 'case')}, worst {STATUS_TEXTS[node.status].label}"
    )
    return Piece(
        node, node.status, round(x, 1), depth * ROW, round(max(width - 1, 0.5), 1), mark + name if name else "", label
    )


def _beyond_budget(tree: tuple[Node, ...]) -> frozenset[str]:
    """Anchors of modules whose inner modules are not listed, so that the tree stays bounded: the least dear ones."""
    left: set[str] = set()
    n, level = 0, list(tree)
    while level:
        following: list[Node] = []
        for node in sorted(level, key=lambda one: (-one.us, -one.n_calls)):
            n += len(node.children)
            if n > MAX_NODES:
                left.add(node.anchor)
            else:
                following += node.children
        level = following
    return frozenset(left)


SECTION = Section("modules", titled("By module"), modules)
