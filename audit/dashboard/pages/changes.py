"""What changed since the last release, and all history with the change that moved it."""

from __future__ import annotations

from collections.abc import Iterator

from audit.dashboard.contents import Contents
from audit.dashboard.pages.markup import page
from audit.dashboard.pages.places import CHANGES, HISTORY
from audit.dashboard.site_file import SiteFile

MAX_HISTORY = 120


def change_files(contents: Contents) -> Iterator[SiteFile]:
    """``changes.html`` and ``history.html``."""
    depends = contents.digest("site")
    yield SiteFile(
        CHANGES, depends, lambda: page("changes.html", CHANGES, releases=contents.releases(), gpus=contents.gpus())
    )
    yield SiteFile(
        HISTORY,
        depends,
        lambda: page(
            "history.html",
            HISTORY,
            transitions=contents.transitions(limit=MAX_HISTORY),
            gpus=contents.gpus(),
            most=MAX_HISTORY,
        ),
    )
