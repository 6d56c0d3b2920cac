"""A page for each GPU at each evidence level: all its versions side by side, its runs, what was never tested on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from itertools import islice

from audit.dashboard.contents import Contents
from audit.dashboard.links import gpu_page
from audit.dashboard.pages.grid import Grid, grid_of, stack_tallies
from audit.dashboard.pages.markup import page
from audit.dashboard.pages.matrix import columns
from audit.dashboard.rows import Gpu, Tally
from audit.dashboard.site_file import SiteFile

MAX_RUNS = 50
MAX_CELLS, LEAST_OPS = 1500, 25


def gpu_files(contents: Contents) -> Iterator[SiteFile]:
    """All of it."""
    grid = functools.cache(lambda: grid_of(contents))
    tallies = functools.cache(lambda: stack_tallies(contents))
    for gpu in contents.gpus():
        depends = contents.digest("gpu", gpu.slug)
        yield SiteFile(gpu_page(gpu.slug), depends, _maker(contents, grid, tallies, gpu))


def _maker(
    contents: Contents, grid: Callable[[], Grid], tallies: Callable[[], dict[str, Tally]], gpu: Gpu
) -> Callable[[], str]:
    def make() -> str:
        shown = grid().of_gpu(gpu.slug)
        found = grid().within(shown)
        untested = next((item for item in contents.untested() if item.gpu.slug == gpu.slug), None)
        release = next((item for item in contents.releases() if item.gpu.slug == gpu.slug), None)
        return page(
            "gpu.html",
            gpu_page(gpu.slug),
            gpu=gpu,
            columns=columns(grid(), shown),
            rows=found[: max(LEAST_OPS, MAX_CELLS // max(1, len(shown)))],
            n_ops=len(found),
            runs=list(islice(contents.runs(gpu=gpu.slug), MAX_RUNS)),
            untested=untested,
            tallies=tallies(),
            release=release,
        )

    return make
