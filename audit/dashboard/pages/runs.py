"""The list of all runs, and a page for each: where, how much of it, every case."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from audit.dashboard.contents import Contents
from audit.dashboard.links import run_page
from audit.dashboard.pages.listing import Listing
from audit.dashboard.pages.markup import macro, page
from audit.dashboard.pages.places import RUNS
from audit.dashboard.rows import RunCase, RunRow
from audit.dashboard.site_file import SiteFile

#: Dtypes to choose from; a stranger's file may name any number.
MAX_CHOICES = 100


def run_files(contents: Contents) -> Iterator[SiteFile]:
    """All of it."""
    site = contents.site()
    depends = contents.digest("site")
    render = macro("rows.html", "run_row")
    listing = Listing("runs", site.n_runs, depends, contents.runs, lambda row: render(row, "", True))
    yield SiteFile(RUNS, depends, lambda: page("runs.html", RUNS, site=site, listing=listing, gpus=contents.gpus()))
    yield from listing.files()
    for row in contents.runs():
        yield from _files_of(contents, row)


def _files_of(contents: Contents, row: RunRow) -> Iterator[SiteFile]:
    depends = contents.digest("run", row.slug)
    render = macro("rows.html", "case_row")

    def cases() -> Iterator[RunCase]:
        return contents.cases(row.slug)

    listing = Listing(
        f"run-{row.slug}", row.share.tally.total, depends, cases, lambda case: render(case, "../", row.stack.evidence)
    )
    yield SiteFile(run_page(row.slug), depends, _maker(contents, row.slug, listing))
    yield from listing.files()


def _maker(contents: Contents, slug: str, listing: Listing[RunCase]) -> Callable[[], str]:
    def make() -> str:
        run = contents.run(slug)
        return page("run.html", run_page(slug), run=run, listing=listing, facts=facts(contents.cases(slug)))

    return make


def facts(cases: Iterator[RunCase]) -> dict[str, list[str]]:
    """What the cases can be filtered by."""
    phases: set[str] = set()
    dtypes: set[str] = set()
    for case in cases:
        phases.add(case.phase)
        dtypes.add(case.dtype)
    return {"phase": sorted(phases), "dtype": sorted(dtypes)[:MAX_CHOICES]}
