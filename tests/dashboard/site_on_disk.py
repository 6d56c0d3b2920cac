"""A site written as it is, without a data base: for tests of pages and of what they weigh."""

from __future__ import annotations

import re
from pathlib import Path

from audit.dashboard.contents import Contents
from audit.dashboard.registry import all_files
from audit.dashboard.site_file import SiteFile


def text_of(file: SiteFile) -> str:
    """The whole content."""
    made = file.make()
    if isinstance(made, bytes):
        return made.decode("latin-1")
    return made if isinstance(made, str) else "".join(made)


def write_site(contents: Contents, folder: Path, wanted: str = "") -> Path:
    """Every file of the site, or those whose paths this pattern matches; its folder."""
    for file in all_files(contents):
        if not re.match(wanted, file.path):
            continue
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        made = file.make()
        path.write_bytes(made if isinstance(made, bytes) else text_of(file).encode("utf-8"))
    return folder
