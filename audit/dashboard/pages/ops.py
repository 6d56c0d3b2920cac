"""A page for each op: what was seen of it where, every signature, findings, and when it changed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from audit.dashboard.contents import Contents
from audit.dashboard.links import op_page
from audit.dashboard.pages.grid import grid_of
from audit.dashboard.pages.listing import FIRST_ROWS, Listing
from audit.dashboard.pages.markup import macro, page
from audit.dashboard.pages.matrix import columns
from audit.dashboard.rows import OpRow, SignatureRow, Stack
from audit.dashboard.site_file import SiteFile
from audit.report.legend import READING_ORDER

#: Changes of its history that a page shows.
MAX_HISTORY = 40
#: A signature has a line for each stack: fewer signatures stand in the page where there are many.
MAX_OBSERVATIONS, LEAST_ROWS = 1000, 5


def op_files(contents: Contents) -> Iterator[SiteFile]:
    """The page of every op, and the data of those with more signatures than a page holds."""
    stacks = {stack.slug: stack for stack in contents.stacks()}
    for op in contents.ops():
        depends = contents.digest("op", op.slug)
        listing = _listing(contents, op, stacks, depends)
        yield SiteFile(op_page(op.slug), depends, _maker(contents, op, stacks, listing))
        yield from listing.files()


def _listing(contents: Contents, op: OpRow, stacks: dict[str, Stack], depends: str) -> Listing[SignatureRow]:
    render = macro("signature.html", "signature")
    n_stacks = sum(level.n_stacks for level in op.by_evidence)
    n_first = max(LEAST_ROWS, min(FIRST_ROWS, MAX_OBSERVATIONS // max(1, n_stacks)))

    def rows() -> Iterator[SignatureRow]:
        found = contents.signatures(op.slug)
        # What fits a page is put in order here; more stay in theirs, and the page's script puts them in order.
        return iter(sorted(found, key=worst_rank)) if op.n_cases <= n_first else found

    return Listing(f"op-{op.slug}", op.n_cases, depends, rows, lambda row: render(row, stacks, "../"), n_first)


@dataclass(frozen=True)
class StackNumbers:
    """Of all cases of an op on one stack: the largest error over its noise, and the median share of the least time.

    ``n_limited`` cases have a time and a limit above zero: the median is of these.
    """

    worst_ratio: float | None
    efficiency: float | None
    n_limited: int


def numbers_by_stack(rows: Iterable[SignatureRow]) -> dict[str, StackNumbers]:
    """By the slugs of stacks; None where nothing was compared, or no limit is known."""
    ratios: dict[str, float] = {}
    shares: dict[str, list[float]] = {}
    for row in rows:
        for seen in row.observations:
            slug = seen.stack_slug
            shares.setdefault(slug, [])
            if seen.worst_ratio is not None:
                ratios[slug] = max(ratios.get(slug, 0.0), seen.worst_ratio)
            if seen.efficiency is not None:
                shares[slug].append(seen.efficiency)
    return {
        slug: StackNumbers(ratios.get(slug), statistics.median(found) if found else None, len(found))
        for slug, found in shares.items()
    }


def worst_rank(row: SignatureRow) -> int:
    """0 for the worst status: the order in which people want to read."""
    return min((READING_ORDER.index(seen.status) for seen in row.observations), default=len(READING_ORDER))


def _maker(
    contents: Contents, op: OpRow, stacks: dict[str, Stack], listing: Listing[SignatureRow]
) -> Callable[[], str]:
    def make() -> str:
        grid = grid_of(contents, op.slug)
        by_dtype = grid.rows[0].by_dtype if grid.rows else ()
        seen = tuple(sorted({cell.stack for _, cells in by_dtype for cell in cells}))
        return page(
            "op.html",
            op_page(op.slug),
            op=op,
            columns=columns(grid, seen),
            by_dtype=[(dtype, {cell.stack: cell for cell in cells}) for dtype, cells in by_dtype],
            seen=[grid.stacks[i] for i in seen],
            stacks=stacks,
            numbers=numbers_by_stack(contents.signatures(op.slug)),
            findings=contents.findings(op.slug),
            listing=listing,
            transitions=contents.transitions(op=op.slug, limit=MAX_HISTORY),
        )

    return make
