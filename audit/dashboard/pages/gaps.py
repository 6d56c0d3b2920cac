"""What a site cannot tell: what was never tested, and files that are no part of it."""

from __future__ import annotations

from collections.abc import Iterator

from audit.dashboard.contents import Contents
from audit.dashboard.links import LEFT_OUT
from audit.dashboard.pages.kinds import SHOWN_SIMULATED, shown_devices, untested_kinds
from audit.dashboard.pages.markup import page
from audit.dashboard.pages.places import UNTESTED
from audit.dashboard.site_file import SiteFile


def gap_files(contents: Contents) -> Iterator[SiteFile]:
    """``untested.html`` and ``left-out.html``."""
    depends = contents.digest("site")
    yield SiteFile(UNTESTED, depends, lambda: _untested(contents))
    yield SiteFile(
        LEFT_OUT,
        depends,
        lambda: page("left-out.html", LEFT_OUT, site=contents.site(), files=contents.left_out(), gpus=contents.gpus()),
    )


def _untested(contents: Contents) -> str:
    untested = contents.untested()
    among = {gpu.slug for gpu in shown_devices(contents.gpus(), SHOWN_SIMULATED)}
    shown = [item for item in untested if item.gpu.slug in among]
    return page(
        "untested.html",
        UNTESTED,
        untested=untested,
        kinds=untested_kinds(shown),
        shown=shown,
        gpus=contents.gpus(),
    )
