"""Who makes the files of a site: modules with ``site_files(contents)``, loaded when a site is built."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

from audit.dashboard.contents import Contents
from audit.dashboard.site_file import SiteFile

MAKERS = ("audit.dashboard.pages", "audit.dashboard.badges", "audit.dashboard.downloads", "audit.dashboard.feed")


def all_files(contents: Contents) -> Iterator[SiteFile]:
    """Every file of the site, in a stable order."""
    for name in MAKERS:
        yield from importlib.import_module(name).site_files(contents)
