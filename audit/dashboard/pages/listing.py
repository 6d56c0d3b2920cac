"""Long lists: a page begins one, and files of data go on with it.

The first rows stand in the page, to be read without JavaScript. The others are rendered by the same template and lie in
``.js`` files, which the page's script takes when a reader filters, sorts or turns over. So no page grows with its list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from audit.dashboard.script_data import script
from audit.dashboard.site_file import SiteFile

FIRST_ROWS = 200
SHARD_ROWS = 1000
Row = TypeVar("Row")


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """``rows`` gives all ``total`` rows anew, always in one order; ``render`` one of them as HTML, of our templates."""

    name: str
    total: int
    depends: str
    rows: Callable[[], Iterable[Row]]
    render: Callable[[Row], str]

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of the files with what the page leaves."""
        left = max(0, self.total - FIRST_ROWS)
        return tuple(f"{self.name}-{i + 1}" for i in range(-(-left // SHARD_ROWS)))

    @property
    def addresses(self) -> str:
        """The files as the page's script reads them."""
        return " ".join(map(shard_path, self.shards))

    def first(self) -> Iterator[str]:
        """What stands in the page."""
        return map(self.render, islice(self.rows(), FIRST_ROWS))

    def files(self) -> Iterator[SiteFile]:
        """The rest."""
        for i, name in enumerate(self.shards):
            start = FIRST_ROWS + i * SHARD_ROWS
            yield SiteFile(shard_path(name), self.depends, self._maker(name, start))

    def _maker(self, name: str, start: int) -> Callable[[], str]:
        def make() -> str:
            rows = islice(self.rows(), start, start + SHARD_ROWS)
            return script(name, "".join(str(self.render(row)) for row in rows))

        return make


def shard_path(name: str) -> str:
    return f"data/{name}.js"
