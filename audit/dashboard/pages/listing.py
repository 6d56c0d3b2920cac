"""Long lists: a page begins one, and files of data go on with it.

The first rows stand in the page, to be read without JavaScript. The others are rendered by the same template and lie in
``.js`` files, which the page's script takes when a reader filters, sorts or turns over. So no page grows with its list.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Generic, TypeVar

from audit.dashboard.script_data import script_json
from audit.dashboard.site_file import SiteFile

#: Rows that stand in a page; a file of data has five times as many.
FIRST_ROWS = 200
Row = TypeVar("Row")


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """``rows`` gives all ``total`` rows anew, always in one order; ``render`` one of them as HTML, of our templates."""

    name: str
    total: int
    depends: str
    rows: Callable[[], Iterable[Row]]
    render: Callable[[Row], str]
    n_first: int = FIRST_ROWS

    @property
    def shards(self) -> tuple[str, ...]:
        """Names of the files with what the page leaves."""
        left = max(0, self.total - self.n_first)
        return tuple(f"{self.name}-{i + 1}" for i in range(-(-left // self._per_file)))

    @property
    def _per_file(self) -> int:
        return self.n_first * 5

    @property
    def addresses(self) -> str:
        """The files as the page's script reads them, with a version, so that no browser mixes old rows with new."""
        return " ".join(f"{shard_path(name)}?{version_of(self.depends)}" for name in self.shards)

    def first(self) -> Iterator[str]:
        """What stands in the page."""
        return map(self.render, islice(self.rows(), self.n_first))

    def files(self) -> Iterator[SiteFile]:
        """The rest."""
        for i, name in enumerate(self.shards):
            start = self.n_first + i * self._per_file
            yield SiteFile(shard_path(name), self.depends, self._maker(name, start))

    def _maker(self, name: str, start: int) -> Callable[[], str]:
        def make() -> str:
            rows = islice(self.rows(), start, start + self._per_file)
            return html_script(name, "".join(str(self.render(row)) for row in rows))

        return make


def shard_path(name: str) -> str:
    return f"data/{name}.js"


def version_of(depends: str) -> str:
    """What stands behind the address of a file whose content depends on this: eight hex digits."""
    return hashlib.sha256(depends.encode("utf-8", "replace")).hexdigest()[:8]


def html_script(name: str, html: str) -> str:
    """A file of data with our own HTML in it, in which all text of strangers is escaped.

    Unlike ``script_data.script`` it lets most ``<`` stand: rows are half made of them. What could end a script element
    is escaped all the same.
    """
    text = json.dumps(html, ensure_ascii=True).replace("</", "<\\/").replace("<!--", "\\u003c!--")
    return f"(window.rocmAudit=window.rocmAudit||{{}})[{script_json(name)}]={text};\n"
