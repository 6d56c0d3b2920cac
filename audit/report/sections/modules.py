"""The step by module: an icicle of its time and a tree with statuses rolled up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from audit.report import text
from audit.report.legend import STATUS_TEXTS
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
    pieces = tuple(_pieces(tree, 0.0, 0, WIDTH / total if total else 0.0, unit, total))
    depth = max((piece.y for piece in pieces), default=0.0)
    return Modules(pieces, depth + ROW, tree, unit, total, n_steps, _beyond_budget(tree))


def _amount(node: Node, unit: str) -> float:
    return node.us if unit == "us" else node.n_calls


def _pieces(nodes: tuple[Node, ...], x: float, depth: int, scale: float, unit: str, total: float) -> Iterator[Piece]:
    """Each module above those within it; what it does itself is the gap to its right."""
    for node in sorted(nodes, key=lambda one: -_amount(one, unit)):
        width = _amount(node, unit) * scale
        if width >= LEAST_WIDTH:
            yield _piece(node, x, depth, width, unit, total)
            if depth + 1 < MAX_DEPTH:
                yield from _pieces(node.children, x, depth + 1, scale, unit, total)
        x += width


def _piece(node: Node, x: float, depth: int, width: float, unit: str, total: float) -> Piece:
    mark = "" if node.status in ("supported", "inconclusive") else f"{STATUS_TEXTS[node.status].mark} "
    room = int((width - 8) / LETTER) - len(mark)
    name = text.one_line(node.name, max(room, 1)) if width >= NAMED_WIDTH and room >= 3 else ""
    amount = _amount(node, unit)
    shown = text.time_text(amount) if unit == "us" else text.plural(round(amount), "call")
    label = (
        f"{text.one_line(node.path, 160)}: {shown}, {text.share_text(amount, total)}; "
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
