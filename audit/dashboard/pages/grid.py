"""The matrix as rows of ops: cells of one dtype each, merged where a page shows all dtypes at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from audit.dashboard.contents import Contents
from audit.dashboard.pages.evidence import EVIDENCE_ORDER
from audit.dashboard.rows import MatrixCell, Stack, Tally
from audit.report.legend import READING_ORDER, status_words
from audit.report.text import plural
from audit.rules.coverage import worst
from audit.schema import Evidence, Status

#: What an op is in trouble by; an op that nobody could judge comes after them, before what is fine.
_TROUBLES = READING_ORDER[:4]


@dataclass(frozen=True)
class GridCell:
    """Cases of an op on the stack with this index: the worst status, all cases, those with a finding, those unknown."""

    stack: int
    status: Status
    n: int
    n_finding: int
    n_unknown: int
    varies: bool

    @property
    def text(self) -> str:
        """``3/12``: cases with a finding of all; ``12`` where none has one."""
        return f"{self.n_finding:,}/{self.n:,}" if self.n_finding else f"{self.n:,}"

    def words(self, evidence: Evidence) -> str:
        """The same for those who hear it: ``divergent, finding in 3 of 12 cases, 1 inconclusive, runs disagree``."""
        said = [status_words(self.status, evidence).label]
        said.append(
            f"finding in {self.n_finding:,} of {plural(self.n, 'case')}" if self.n_finding else plural(self.n, "case")
        )
        if self.n_unknown:
            said.append(f"{self.n_unknown:,} inconclusive")
        if self.varies:
            said.append("runs disagree")
        return ", ".join(said)


@dataclass(frozen=True)
class GridRow:
    """An op with its class; its cells by dtype, in the order of stacks."""

    op: str
    slug: str
    kind: str
    by_dtype: tuple[tuple[str, tuple[GridCell, ...]], ...]

    def merged(self, stacks: Collection[int]) -> dict[int, GridCell]:
        """One cell a stack, over all dtypes."""
        found: dict[int, GridCell] = {}
        for _, cells in self.by_dtype:
            for cell in cells:
                if cell.stack in stacks:
                    known = found.get(cell.stack)
                    found[cell.stack] = cell if known is None else _sum(known, cell)
        return found


@dataclass(frozen=True)
class Grid:
    """All ops, troubles first: what was measured before what was not."""

    stacks: tuple[Stack, ...]
    rows: tuple[GridRow, ...]

    @property
    def newest(self) -> tuple[int, ...]:
        """The newest stack of each GPU that has any case: the last, since stacks come with older versions first."""
        seen = {cell.stack for row in self.rows for _, cells in row.by_dtype for cell in cells}
        last = {self.stacks[i].gpu_slug: i for i in sorted(seen)}
        return tuple(sorted(last.values()))

    def of_gpu(self, gpu_slug: str) -> tuple[int, ...]:
        """Its stacks, newest first."""
        return tuple(i for i in reversed(range(len(self.stacks))) if self.stacks[i].gpu_slug == gpu_slug)

    def within(self, stacks: tuple[int, ...]) -> list[tuple[GridRow, dict[int, GridCell]]]:
        """Ops that were seen on these stacks, troubles there first, each with its merged cells."""
        among = frozenset(stacks)
        found = [(row, cells) for row in self.rows if (cells := row.merged(among))]
        return sorted(found, key=lambda pair: self._trouble(pair[0], pair[1].values()))

    def _trouble(self, row: GridRow, cells: Iterable[GridCell]) -> tuple[object, ...]:
        ranks = {level: len(_TROUBLES) for level in EVIDENCE_ORDER}
        unknown = False
        for cell in cells:
            level = self.stacks[cell.stack].evidence
            if cell.status in _TROUBLES:
                ranks[level] = min(ranks[level], _TROUBLES.index(cell.status))
            unknown = unknown or cell.status == "inconclusive"
        return (*ranks.values(), not unknown, row.op)


def grid_of(contents: Contents, op: str = "") -> Grid:
    """All ops, or the one with this slug."""
    stacks = contents.stacks()
    index = {stack.slug: i for i, stack in enumerate(stacks)}
    names = {row.slug: (row.op, row.op_class) for row in contents.ops()}
    rows = tuple(_rows(contents.matrix(op), index, names))
    grid = Grid(stacks, rows)
    everywhere = tuple(range(len(stacks)))
    return Grid(stacks, tuple(row for row, _ in grid.within(everywhere)))


def _rows(cells: Iterator[MatrixCell], index: dict[str, int], names: dict[str, tuple[str, str]]) -> Iterator[GridRow]:
    for slug, of_op in groupby(cells, key=lambda cell: cell.op_slug):
        by_dtype = tuple(
            (dtype, tuple(sorted((_cell(cell, index) for cell in group), key=lambda cell: cell.stack)))
            for dtype, group in groupby(of_op, key=lambda cell: cell.dtype)
        )
        op, kind = names[slug]
        yield GridRow(op, slug, kind, by_dtype)


def _cell(cell: MatrixCell, index: dict[str, int]) -> GridCell:
    tally = cell.tally
    return GridCell(
        index[cell.stack_slug], cell.status, tally.total, tally.n_with_finding, tally.count("inconclusive"), cell.varies
    )


def _sum(a: GridCell, b: GridCell) -> GridCell:
    return GridCell(
        a.stack,
        worst((a.status, b.status)),
        a.n + b.n,
        a.n_finding + b.n_finding,
        a.n_unknown + b.n_unknown,
        a.varies or b.varies,
    )


def stack_tallies(contents: Contents) -> dict[str, Tally]:
    """Cases of each stack by status, by its slug: every case is in one cell of its stack."""
    counts: dict[str, Counter[Status]] = {stack.slug: Counter() for stack in contents.stacks()}
    for cell in contents.matrix():
        counts[cell.stack_slug].update(dict(cell.tally.by_status))
    return {
        slug: Tally(tuple((status, found[status]) for status in READING_ORDER if found[status]))
        for slug, found in counts.items()
    }


def dtypes_of(rows: Iterable[GridRow]) -> list[str]:
    """Every dtype, by name."""
    return sorted({dtype for row in rows for dtype, _ in row.by_dtype})
