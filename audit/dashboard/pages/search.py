"""What the search in the head of each page looks through: a line for each op, GPU, model and run, in files of data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from audit.dashboard import links
from audit.dashboard.contents import Contents
from audit.dashboard.pages.listing import shard_path
from audit.dashboard.pages.markup import version_label
from audit.dashboard.script_data import script
from audit.dashboard.site_file import SiteFile

SHARD_LINES = 4000
Line = tuple[str, str, str, str]


def search_files(contents: Contents) -> Iterator[SiteFile]:
    """``data/search.js`` says how many follow it; each is a list of [kind, name, place, what more]."""
    depends = contents.digest("site")
    n_lines = len(contents.ops()) + len(contents.gpus()) + len(contents.models()) + contents.site().n_runs
    names = [f"search-{i + 1}" for i in range(-(-n_lines // SHARD_LINES))]
    yield SiteFile(shard_path("search"), depends, lambda: script("search", names))
    for i, name in enumerate(names):
        yield SiteFile(shard_path(name), depends, _maker(contents, name, i))


def _maker(contents: Contents, name: str, number: int) -> Callable[[], str]:
    def make() -> str:
        return script(name, list(islice(_lines(contents), number * SHARD_LINES, (number + 1) * SHARD_LINES)))

    return make


def _lines(contents: Contents) -> Iterator[Line]:
    for gpu in contents.gpus():
        how = f"{gpu.evidence}, imported" if gpu.is_imported else gpu.evidence
        yield "GPU", gpu.name, links.gpu_page(gpu.slug), f"{gpu.arch} {how}"
    for op in contents.ops():
        yield "op", op.op, links.op_page(op.slug), op.op_class
    for model in contents.models():
        yield "model", model.name, links.model_page(model.slug), model.kind
    for run in contents.runs():
        told = f"{run.stack.gpu} {version_label(run.stack)} {run.date}"
        yield "run", run.source, links.run_page(run.slug), f"{told} {run.stack.evidence_text}"
