"""The matrix: op × GPU × ROCm × torch × dtype, with status.

A page holds the newest stack of each GPU for a hundred ops, and needs no script for that. Its script takes the rest
from files of data: every stack, every dtype, all filters.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from audit.dashboard.contents import Contents
from audit.dashboard.links import MATRIX
from audit.dashboard.pages.evidence import texture
from audit.dashboard.pages.grid import Grid, GridCell, GridRow, dtypes_of, grid_of
from audit.dashboard.pages.kinds import kinds_of
from audit.dashboard.pages.listing import shard_path, version_of
from audit.dashboard.pages.markup import page
from audit.dashboard.rows import Stack
from audit.dashboard.script_data import script
from audit.dashboard.site_file import SiteFile
from audit.report.legend import READING_ORDER, STATUS_TEXTS, status_words

PAGE_ROWS = 100
SHARD_OPS = 500


@dataclass(frozen=True)
class Column:
    """A stack of the matrix, by its index among all."""

    index: int
    stack: Stack


def matrix_files(contents: Contents) -> Iterator[SiteFile]:
    """``matrix.html``, ``matrix-2.html`` and on, and the data of their script."""
    depends = contents.digest("site")
    grid = functools.cache(lambda: grid_of(contents))
    n_ops = len(contents.ops())
    for number in range(1, max(1, -(-n_ops // PAGE_ROWS)) + 1):
        yield SiteFile(matrix_page(number), depends, _page_maker(contents, grid, number))
    n_shards = -(-n_ops // SHARD_OPS)
    yield SiteFile(shard_path("matrix"), depends, lambda: script("matrix", _meta(grid(), n_shards)))
    for i in range(n_shards):
        yield SiteFile(shard_path(f"matrix-{i + 1}"), depends, _shard_maker(grid, i))


def matrix_page(number: int) -> str:
    """Without JavaScript one turns over to the next hundred ops."""
    return MATRIX if number == 1 else f"matrix-{number}.html"


def _page_maker(contents: Contents, grid: Callable[[], Grid], number: int) -> Callable[[], str]:
    def make() -> str:
        shown = grid().newest
        rows = grid().within(shown)
        n_pages = max(1, -(-len(rows) // PAGE_ROWS))
        stacks = grid().stacks
        return page(
            "matrix.html",
            matrix_page(number),
            site=contents.site(),
            stacks=stacks,
            columns=columns(grid(), shown),
            rows=rows[(number - 1) * PAGE_ROWS : number * PAGE_ROWS],
            n_rows=len(rows),
            n_columns=len(shown),
            first=(number - 1) * PAGE_ROWS + 1,
            number=number,
            version=version_of(contents.digest("site")),
            pages=[(n, matrix_page(n)) for n in range(1, n_pages + 1)],
            dtypes=dtypes_of(grid().rows),
            kinds=kinds_of(row.kind for row in grid().rows),
            gpus=list({stack.gpu_slug: f"{stack.gpu}, {stack.evidence_text}" for stack in stacks}.items()),
            runtimes=sorted({stack.runtime for stack in stacks if stack.runtime}),
            torches=sorted({stack.torch for stack in stacks if stack.torch}),
            levels=sorted({stack.evidence_text for stack in stacks}),
        )

    return make


def columns(grid: Grid, shown: tuple[int, ...]) -> list[tuple[Stack, list[Column]]]:
    """Stacks by GPU and evidence, as the head of a table groups them, newest first: (any of the group, its columns)."""
    groups: dict[tuple[str, str], list[Column]] = {}
    for i in sorted(shown, reverse=True):
        stack = grid.stacks[i]
        groups.setdefault((stack.gpu_slug, stack.evidence_text), []).append(Column(i, stack))
    return [(members[0].stack, members) for members in reversed(groups.values())]


def _meta(grid: Grid, n_shards: int) -> dict[str, Any]:
    return {
        "stacks": [
            {
                "slug": stack.slug,
                "gpu": stack.gpu,
                "gpuSlug": stack.gpu_slug,
                "evidence": stack.evidence_text,
                "texture": texture(stack.evidence, stack.is_imported),
                "runtime": stack.runtime,
                "torch": stack.torch,
            }
            for stack in grid.stacks
        ],
        "newest": list(grid.newest),
        "statuses": list(READING_ORDER),
        "labels": [STATUS_TEXTS[status].label for status in READING_ORDER],
        "predicted": [status_words(status, "predicted").label for status in READING_ORDER],
        "shards": [f"matrix-{i + 1}" for i in range(n_shards)],
        "evidenceOrder": [stack.evidence for stack in grid.stacks],
    }


def _shard_maker(grid: Callable[[], Grid], number: int) -> Callable[[], str]:
    def make() -> str:
        rows = grid().rows[number * SHARD_OPS : (number + 1) * SHARD_OPS]
        return script(f"matrix-{number + 1}", [_packed(row, len(grid().stacks)) for row in rows])

    return make


def _packed(row: GridRow, n_stacks: int) -> list[Any]:
    """[op, slug, [[dtype, signs, counts]], kind]: a sign for each stack, and counts of those that have one.

    A sign is the digit of its status in reading order, a letter (a for 0) where runs disagree, a dot where nothing was
    seen. Counts are ``cases/with a finding/inconclusive``, zeros at the end left out.
    """
    by_dtype = [[dtype, _signs(cells, n_stacks), _counts(cells)] for dtype, cells in row.by_dtype]
    return [row.op, row.slug, by_dtype, row.kind]


def _signs(cells: tuple[GridCell, ...], n_stacks: int) -> str:
    signs = ["."] * n_stacks
    for cell in cells:
        rank = READING_ORDER.index(cell.status)
        signs[cell.stack] = "abcdef"[rank] if cell.varies else str(rank)
    return "".join(signs)


def _counts(cells: tuple[GridCell, ...]) -> str:
    found = []
    for cell in cells:
        numbers = [cell.n, cell.n_finding, cell.n_unknown]
        while not numbers[-1]:
            numbers.pop()
        found.append("/".join(map(str, numbers)))
    return ",".join(found)
