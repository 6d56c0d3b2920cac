"""Every timed case against what its device can do: arithmetic by its intensity, and what only moves bytes by its size.

Flops and bytes are the least that a call needs (``audit.rules.work``), so that what a cache gives makes a case look
better than the copy bandwidth, and never a case look better than the arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from audit.report import text
from audit.report.legend import STATUS_TEXTS
from audit.report.rows import CaseRow
from audit.report.sections.axis import LogAxis
from audit.report.sections.section import Material, Section, titled
from audit.report.sections.shapes import mark_path
from audit.rules.rates import launch_us, rates_of
from audit.rules.shown_rates import shown_ceilings, works_of
from audit.schema import Ceilings, Status

WIDTH, HEIGHT = 960.0, 380.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 26.0, 20.0, 44.0
#: The largest and the smallest mark; its area goes by the time of all calls.
MAX_RADIUS, MIN_RADIUS = 22.0, 3.5
#: The height of a line of text, and about the width of a letter in it.
LABEL, LETTER = 13.0, 6.8
#: Marks drawn and rows of the table: the dearest cases. All are in the table of operators.
MAX_MARKS, MAX_ROWS = 400, 30

_LETTERS = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True)
class Mark:
    """A case on a chart. ``path`` is its shape, ``label`` all that it says; ``x`` and ``y`` as values, not places."""

    row: CaseRow
    status: Status
    path: str
    label: str
    x: float
    y: float
    reached: float | None


@dataclass(frozen=True)
class Line:
    """A ceiling as a polyline, its name at (``x``, ``y``)."""

    points: str
    name: str
    x: float
    y: float
    dashed: bool = False


@dataclass(frozen=True)
class Chart:
    """One drawing. ``n_left`` cases that took least time are not drawn."""

    name: str
    title: str
    x_title: str
    y_title: str
    marks: tuple[Mark, ...]
    lines: tuple[Line, ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    n_left: int


@dataclass(frozen=True)
class Roofline:
    """``rates`` says whose the ceilings are, where any are known.

    Both charts are None where no GPU was timed: then ``why_none`` says so.
    """

    arithmetic: Chart | None = None
    traffic: Chart | None = None
    rates: str = ""
    why_none: str = ""
    n_without: int = 0

    @property
    def statuses(self) -> set[Status]:
        """Those that have a mark."""
        return {mark.status for chart in (self.arithmetic, self.traffic) if chart is not None for mark in chart.marks}


def roofline(material: Material) -> Roofline | None:
    """The charts, or why there are none; None where the run has no case."""
    if not material.rows:
        return None
    if not material.is_timed:
        return Roofline(why_none=_why_none(material))
    judgement = material.judgement
    works = works_of(judgement.run)
    ceilings = shown_ceilings(judgement.run, works)
    timed = [row for row in material.rows if row.verdict.device_us and row.verdict.moved_bytes]
    dtypes = {row.verdict.key: work.dtype for row in timed if (work := works.get(row.verdict.key)) is not None}
    arithmetic = _arithmetic(material, [row for row in timed if row.verdict.flops], ceilings, dtypes)
    traffic = _traffic(material, [row for row in timed if not row.verdict.flops], ceilings)
    if arithmetic is None and traffic is None:
        return Roofline(why_none="No timed case has work that is known, so there is nothing to draw.")
    has_lines = any(chart.lines for chart in (arithmetic, traffic) if chart is not None)
    rates = (
        f"measured on {judgement.run.header.device.name} before the first case, or faster where a call of this run was"
        if ceilings is not None
        else f"the datasheet peaks of {judgement.run.header.device.name}, which no kernel reaches"
    )
    n_without = sum(row.total_us is not None for row in material.rows) - len(timed)
    return Roofline(arithmetic, traffic, rates if has_lines else "", n_without=n_without)


def _why_none(material: Material) -> str:
    why = {
        "simulated": "No GPU was timed: a simulated device ran, whose times are those of a CPU.",
        "predicted": "No GPU was timed: nothing ran.",
    }.get(material.judgement.run.header.evidence, "No case of this run has a time.")
    return f"{why} A replay on a GPU draws every case here, against what that GPU can do."


def _arithmetic(
    material: Material, rows: list[CaseRow], ceilings: Ceilings | None, dtypes: dict[str, str]
) -> Chart | None:
    """FLOP/s over FLOP per byte, with the copy bandwidth and the products' rate of each dtype."""
    if not rows:
        return None
    device = material.judgement.run.header.device
    shown = _dearest(rows)
    xs = [(row.verdict.flops or 0.0) / (row.verdict.moved_bytes or 1.0) for row in shown]
    ys = [(row.verdict.flops or 0.0) / (row.verdict.device_us or 1.0) * 1e6 for row in shown]
    peaks = {
        dtype: rates_of(device, ceilings, dtype)[1] for dtype in sorted({dtypes[row.verdict.key] for row in shown})
    }
    tops = {dtype: tflops * 1e12 for dtype, tflops in peaks.items() if tflops}
    bandwidth_gbs = rates_of(device, ceilings, "")[0]
    ridges = [top / bandwidth_gbs / 1e9 for top in tops.values()] if bandwidth_gbs else []
    x_axis = LogAxis.over([*xs, *(ridge / 5 for ridge in ridges)], LEFT, WIDTH - RIGHT)  # so that the slope shows
    y_axis = LogAxis.over([*ys, *tops.values()], HEIGHT - BOTTOM, TOP)
    lines = _roofs(x_axis, y_axis, bandwidth_gbs * 1e9 if bandwidth_gbs else None, tops)
    marks = _marks(shown, xs, ys, x_axis, y_axis, lambda x, y: f"{_flops(y)} at {x:,.3g} FLOP/B")
    return Chart(
        "arithmetic",
        "Arithmetic",
        "FLOP per byte that must move",
        "FLOP a second",
        marks,
        lines,
        tuple((place, _plain(value)) for place, value in x_axis.ticks()),
        tuple((place, _short(value)) for place, value in y_axis.ticks()),
        len(rows) - len(shown),
    )


def _traffic(material: Material, rows: list[CaseRow], ceilings: Ceilings | None) -> Chart | None:
    """Bytes a second over the bytes of a call, with the copy bandwidth and what one launch allows."""
    if not rows:
        return None
    device = material.judgement.run.header.device
    shown = _dearest(rows)
    xs = [row.verdict.moved_bytes or 0.0 for row in shown]
    ys = [x / (row.verdict.device_us or 1.0) * 1e6 for x, row in zip(xs, shown, strict=True)]
    bandwidth_gbs = rates_of(device, ceilings, "")[0]
    top = bandwidth_gbs * 1e9 if bandwidth_gbs else None
    x_axis = LogAxis.over(xs, LEFT, WIDTH - RIGHT)
    y_axis = LogAxis.over([*ys, *([top] if top else [])], HEIGHT - BOTTOM, TOP)
    lines = _traffic_roofs(x_axis, y_axis, top, launch_us(ceilings))
    marks = _marks(shown, xs, ys, x_axis, y_axis, lambda x, y: f"{_bytes(y)}/s of {text.bytes_text(x)}", top)
    return Chart(
        "traffic",
        "Bytes alone",
        "bytes that a call must move",
        "bytes a second",
        marks,
        lines,
        tuple((place, _short(value, "B")) for place, value in x_axis.ticks()),
        tuple((place, _short(value, "B")) for place, value in y_axis.ticks()),
        len(rows) - len(shown),
    )


def _dearest(rows: Iterable[CaseRow]) -> list[CaseRow]:
    return sorted(rows, key=lambda row: -(row.total_us or 0.0))[:MAX_MARKS]


def _roofs(x_axis: LogAxis, y_axis: LogAxis, bandwidth: float | None, tops: dict[str, float]) -> tuple[Line, ...]:
    """A slope of bytes and, for each dtype, a flat piece of arithmetic that begins at the slope."""
    left, right = 10.0**x_axis.low, 10.0**x_axis.high
    lines = []
    highest = max(tops.values(), default=None)
    if bandwidth:
        start = max(left, 10.0**y_axis.low / bandwidth)
        end = min(right, highest / bandwidth if highest else right, 10.0**y_axis.high / bandwidth)
        if start < end:
            points = _polyline(x_axis, y_axis, [(start, start * bandwidth), (end, end * bandwidth)])
            lines.append(_sloped(points, f"{_bytes(bandwidth)}/s", x_axis, y_axis, (start, end), bandwidth, False))
    lowest = 0.0
    for number, (dtype, top) in enumerate(sorted(tops.items(), key=lambda item: -item[1])):
        start = min(max(left, top / bandwidth if bandwidth else left), right)
        points = _polyline(x_axis, y_axis, [(start, top), (right, top)])
        height = y_axis.place(top)
        label = height - 5 if height - 5 >= lowest + LABEL or number == 0 else max(height, lowest) + LABEL
        lowest = label
        lines.append(Line(points, f"{dtype} {_flops(top)}", WIDTH - RIGHT, label, dashed=number > 0))
    return tuple(lines)


def _traffic_roofs(x_axis: LogAxis, y_axis: LogAxis, top: float | None, launch: float | None) -> tuple[Line, ...]:
    left, right = 10.0**x_axis.low, 10.0**x_axis.high
    lines = []
    if top:
        points = _polyline(x_axis, y_axis, [(left, top), (right, top)])
        lines.append(Line(points, f"copy {_bytes(top)}/s", WIDTH - RIGHT, y_axis.place(top) - 5))
    if launch:
        a_second = 1e6 / launch  # bytes a second of one byte in one launch
        end = min(right, (top or 10.0**y_axis.high) / a_second)
        start = max(left, 10.0**y_axis.low / a_second)
        if start < end:
            points = _polyline(x_axis, y_axis, [(start, start * a_second), (end, end * a_second)])
            name = f"one launch, {text.time_text(launch)}"
            lines.append(_sloped(points, name, x_axis, y_axis, (start, end), a_second, True))
    return tuple(lines)


def _sloped(
    points: str, name: str, x_axis: LogAxis, y_axis: LogAxis, ends: tuple[float, float], slope: float, dashed: bool
) -> Line:
    """A slope with its name left of its middle, above it; without room for that, below it from the axis on."""
    start, middle = ends[0], math.sqrt(ends[0] * ends[1])
    x, least = x_axis.place(middle) - 6, LEFT + 6 + LETTER * len(name)
    if x < least:
        return Line(points, name, least, y_axis.place(start * slope) + LABEL + 2, dashed)
    return Line(points, name, x, y_axis.place(middle * slope) - 6, dashed)


def _polyline(x_axis: LogAxis, y_axis: LogAxis, points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x_axis.place(x)},{y_axis.place(y)}" for x, y in points)


def _marks(
    rows: list[CaseRow],
    xs: list[float],
    ys: list[float],
    x_axis: LogAxis,
    y_axis: LogAxis,
    said: Callable[[float, float], str],
    top: float | None = None,
) -> tuple[Mark, ...]:
    """Largest first, so that small ones lie on top."""
    most = max((row.total_us or 0.0 for row in rows), default=0.0) or 1.0
    found = []
    for row, x, y in zip(rows, xs, ys, strict=True):
        verdict = row.verdict
        radius = max(MIN_RADIUS, MAX_RADIUS * math.sqrt((row.total_us or 0.0) / most))
        reached = verdict.floor_us / verdict.device_us if verdict.floor_us and verdict.device_us else None
        if reached is None and top:
            reached = y / top
        share = f", {text.share_text(reached, 1.0)} of the ceiling" if reached is not None and reached <= 1 else ""
        label = (
            f"{text.short_op(verdict.op)} {text.one_line(verdict.signature, 120)}: {STATUS_TEXTS[row.status].label}, "
            f"{said(x, y)}{share}, {text.time_text(verdict.device_us)} a call, {text.time_text(row.total_us)} in all"
        )
        path = mark_path(row.status, x_axis.place(x), y_axis.place(y), radius)
        found.append(Mark(row, row.status, path, text.printable(label), x, y, reached))
    return tuple(found)


def _flops(value: float) -> str:
    return f"{text.flops_text(value)}/s"


def _bytes(value: float) -> str:
    return text.rate_text(value / 1e12, "TB") if value >= 1e12 else text.rate_text(value / 1e9, "GB")


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def si_text(value: float) -> str:
    """Three digits and a letter: ``1.23 T``, ``0.5``."""
    for factor, letter in _LETTERS:
        if value >= factor:
            return f"{value / factor:.3g} {letter}"
    return f"{value:.3g}"


def _short(value: float, unit: str = "") -> str:
    """``100 G``, ``1 TB``."""
    for factor, letter in _LETTERS:
        if value >= factor:
            return f"{value / factor:g} {letter}{unit}"
    return f"{value:g} {unit}".rstrip()


SECTION = Section("roofline", titled("Every case against the device's limits"), roofline)
