"""All pages of a site, and the data of their scripts. What they show is asked of ``Contents``, and of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from audit.dashboard.contents import Contents
from audit.dashboard.pages.assets import asset_files
from audit.dashboard.pages.changes import change_files
from audit.dashboard.pages.front import front_files
from audit.dashboard.pages.gaps import gap_files
from audit.dashboard.pages.gpus import gpu_files
from audit.dashboard.pages.matrix import matrix_files
from audit.dashboard.pages.models import model_files
from audit.dashboard.pages.ops import op_files
from audit.dashboard.pages.runs import run_files
from audit.dashboard.pages.search import search_files
from audit.dashboard.site_file import SiteFile

PAGES: tuple[Callable[[Contents], Iterator[SiteFile]], ...] = (
    front_files,
    matrix_files,
    op_files,
    gpu_files,
    model_files,
    run_files,
    change_files,
    gap_files,
    search_files,
)


def site_files(contents: Contents) -> Iterator[SiteFile]:
    """Every page with its data, then style and scripts."""
    for files in PAGES:
        yield from files(contents)
    yield from asset_files()
