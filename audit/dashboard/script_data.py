"""Data for the pages' scripts, as ``.js`` files: a page that is opened from a disk may not fetch, but may have scripts.

``<script src="data/ops-1.js">`` puts its content at ``window.rocmAudit["ops-1"]``.
"""

from __future__ import annotations

import json
from typing import Any

#: What would end a script element or a line in one: with these escaped, the text is safe in a page, too.
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def script(name: str, content: Any) -> str:
    """The text of the file. Raises ValueError on NaN, which JSON does not know."""
    return f"(window.rocmAudit=window.rocmAudit||{{}})[{script_json(name)}]={script_json(content)};\n"


def script_json(content: Any) -> str:
    """Compact JSON that is harmless inside a script element."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.translate(_ESCAPES)
