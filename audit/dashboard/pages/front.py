"""The first page of a site, and the one that says how to read all others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from audit.dashboard.contents import Contents
from audit.dashboard.links import INDEX
from audit.dashboard.pages.evidence import EVIDENCE_MEANINGS
from audit.dashboard.pages.grid import stack_tallies
from audit.dashboard.pages.kinds import SHOWN_SIMULATED, all_kinds, kind_rows, shown_devices, troubles
from audit.dashboard.pages.markup import page
from audit.dashboard.pages.places import ABOUT
from audit.dashboard.site_file import SiteFile

NEWEST_RUNS = 8
SHOWN_MODELS = 12
SHOWN_STACKS = 4


def front_files(contents: Contents) -> Iterator[SiteFile]:
    """``index.html`` and ``about.html``."""
    depends = contents.digest("site")
    yield SiteFile(INDEX, depends, lambda: _index(contents))
    yield SiteFile(
        ABOUT,
        depends,
        lambda: page(
            "about.html", ABOUT, site=contents.site(), gpus=contents.gpus(), evidence_meanings=EVIDENCE_MEANINGS
        ),
    )


def _index(contents: Contents) -> str:
    models = contents.models()
    devices = shown_devices(contents.gpus(), SHOWN_SIMULATED)
    return page(
        "index.html",
        INDEX,
        site=contents.site(),
        gpus=contents.gpus(),
        devices=devices,
        kinds=kind_rows(contents.on_gpus()),
        all_kinds=all_kinds(contents.gpus()),
        troubles=troubles(contents.on_gpus()),
        releases=contents.releases(),
        runs=list(islice(contents.runs(), NEWEST_RUNS)),
        models=models[:SHOWN_MODELS],
        n_models=len(models),
        SHOWN_SIMULATED=SHOWN_SIMULATED,
        untested=contents.untested(),
        tallies=stack_tallies(contents),
        SHOWN_STACKS=SHOWN_STACKS,
    )
