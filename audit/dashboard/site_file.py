"""One file of a site, made only where what it shows has changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class SiteFile:
    """``path`` is relative to the site, of slugs and our own words. ``make`` gives the whole text.

    ``depends`` is a digest of all that the text is made of: while it is what it was, ``make`` is not called and the
    file keeps its bytes. Templates and code need not be in it: a changed rocm-audit makes every file anew.
    ``make`` may give the text in pieces, so that a large file never is in memory as a whole.
    """

    path: str
    depends: str
    make: Callable[[], str | bytes | Iterable[str]]
