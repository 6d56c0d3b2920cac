"""A histogram of errors in ULP as a line of text: one bar for each power of two, heights by the logarithm."""

from __future__ import annotations

import math
from collections.abc import Sequence

_HEIGHTS = "▁▂▃▄▅▆▇█"
#: Powers of two shown; int64 distances have 63.
_MOST = 64


def bars(counts: Sequence[int]) -> str:
    """``█▃▁··▂``: of ``Comparison.ulp_counts``; a dot where nothing is, empty where there is no histogram."""
    shown = [max(count, 0) for count in counts[:_MOST]]
    most = math.log2(max(shown, default=0) + 1)
    if not most:
        return ""
    top = len(_HEIGHTS) - 1
    return "".join(_HEIGHTS[round(top * math.log2(n + 1) / most)] if n else "·" for n in shown)


def bars_label(counts: Sequence[int]) -> str:
    """What the bars reach to: ``errors from 0 to 2^13 ULP``."""
    return f"errors from 0 to {'1' if len(counts) <= 2 else f'2^{len(counts) - 1}'} ULP" if counts else ""
