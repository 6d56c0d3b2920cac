"""A shape for each status, so that a chart is read without colour: outlines around a centre, as SVG paths."""

from __future__ import annotations

import math
from collections.abc import Mapping

from audit.schema import Status

#: Corners (0: a circle), turn of the first one in degrees from the right, and size beside a circle of the same area.
_FORMS: Mapping[Status, tuple[int, float, float]] = {
    "supported": (0, 0.0, 1.0),
    "slow": (3, 90.0, 1.4),
    "falling_back": (4, 45.0, 1.2),
    "divergent": (4, 0.0, 1.25),
    "inconclusive": (6, 0.0, 1.1),
}


def mark_path(status: Status, x: float, y: float, radius: float) -> str:
    """Circle, triangle, square, diamond, hexagon; a cross for ``unsupported``. The area goes by ``radius`` squared."""
    if status == "unsupported":
        return _cross(x, y, radius * 1.15)
    corners, turn, scale = _FORMS[status]
    size = round(radius * scale, 1)
    if not corners:
        return f"M{x - size:.1f} {y}a{size} {size} 0 1 0 {2 * size:.1f} 0a{size} {size} 0 1 0 {-2 * size:.1f} 0z"
    angles = [math.radians(turn + 360 * corner / corners) for corner in range(corners)]
    points = [f"{x + size * math.cos(angle):.1f} {y + size * math.sin(angle):.1f}" for angle in angles]
    return f"M{'L'.join(points)}z"


def _cross(x: float, y: float, size: float) -> str:
    """A bold X."""
    arm = size * 0.32
    steps = (
        (-size, -size + arm), (-size + arm, -size), (0.0, -arm), (size - arm, -size), (size, -size + arm), (arm, 0.0),
        (size, size - arm), (size - arm, size), (0.0, arm), (-size + arm, size), (-size, size - arm), (-arm, 0.0),
    )  # fmt: skip
    return f"M{'L'.join(f'{x + dx:.1f} {y + dy:.1f}' for dx, dy in steps)}z"
