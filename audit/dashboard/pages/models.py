"""The list of models, and a page for each: its runs over time, what moved between them, its badges."""

from __future__ import annotations

import functools
from collections.abc import Iterator

from audit.dashboard.contents import Contents
from audit.dashboard.links import model_page
from audit.dashboard.pages.listing import Listing
from audit.dashboard.pages.markup import macro, page
from audit.dashboard.pages.places import MODELS
from audit.dashboard.rows import ModelRow, RunRow
from audit.dashboard.site_file import SiteFile

MAX_HISTORY = 60


def model_files(contents: Contents) -> Iterator[SiteFile]:
    """All of it."""
    depends = contents.digest("site")
    models = contents.models()
    render = macro("rows.html", "model_row")
    listing = Listing("models", len(models), depends, contents.models, lambda row: render(row, ""))
    yield SiteFile(MODELS, depends, lambda: page("models.html", MODELS, listing=listing, gpus=contents.gpus()))
    yield from listing.files()
    for model in models:
        yield from _files_of(contents, model)


def _files_of(contents: Contents, model: ModelRow) -> Iterator[SiteFile]:
    depends = contents.digest("model", model.slug)
    render = macro("rows.html", "run_row")

    def runs() -> Iterator[RunRow]:
        return contents.runs(model=model.slug)

    listing = Listing(f"model-{model.slug}", model.n_runs, depends, runs, lambda row: render(row, "../", False))
    yield SiteFile(model_page(model.slug), depends, functools.partial(_page, contents, model, listing))
    yield from listing.files()


def _page(contents: Contents, model: ModelRow, listing: Listing[RunRow]) -> str:
    transitions = contents.transitions(model=model.slug, limit=MAX_HISTORY)
    return page("model.html", model_page(model.slug), model=model, listing=listing, transitions=transitions)
