"""Style sheet and scripts of a site: files of their own, since its pages forbid all that stands in them."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from audit.dashboard.site_file import SiteFile

_OURS = Path(__file__).resolve().parent.parent / "templates"
#: Colours and signs are those of a report: one language.
_REPORTS = Path(__file__).resolve().parents[2] / "report" / "templates"
SCRIPTS = ("theme.js", "site.js", "list.js", "matrix.js")


def asset_files() -> Iterator[SiteFile]:
    """The style sheet, and the scripts as they are."""
    yield SiteFile("assets/site.css", ASSETS_VERSION, style_sheet)
    for name in SCRIPTS:
        yield SiteFile(f"assets/{name}", ASSETS_VERSION, functools.partial(_script, name))


def style_sheet() -> str:
    """Palette, signs, and the rest."""
    palette = (_REPORTS / "palette.css").read_text(encoding="utf-8")
    return "\n".join((palette, _signs(), (_OURS / "site.css").read_text(encoding="utf-8")))


def _signs() -> str:
    """The report's icons as masks, so that a cell of a table of thousands needs no element for its sign."""
    sprite = (_REPORTS / "icons.svg").read_text(encoding="utf-8")
    rules = []
    for name, drawing in re.findall(r'<symbol id="i-([a-z_]+)"[^>]*>(.*?)</symbol>', sprite, re.DOTALL):
        svg = (
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="#000" stroke-width="1.9" '
            f'stroke-linecap="round" stroke-linejoin="round">{drawing}</svg>'
        )
        rules.append(f'.s-{name}, .i-{name} {{ --sign: url("data:image/svg+xml,{quote(svg)}"); }}')
    return "\n".join(rules)


def _script(name: str) -> str:
    return (_OURS / name).read_text(encoding="utf-8")


def _version() -> str:
    digest = hashlib.sha256(style_sheet().encode())
    for name in SCRIPTS:
        digest.update(_script(name).encode())
    return digest.hexdigest()[:8]


#: Stands in the addresses of assets, so that a browser does not show a new page in an old style.
ASSETS_VERSION = _version()
