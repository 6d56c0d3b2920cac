"""The ops that cost most: device time where there is any, else calls."""

from __future__ import annotations

from dataclasses import dataclass

from audit.report import text
from audit.report.rows import OpRow
from audit.report.sections.bars import Bar, segments
from audit.report.sections.section import Material, Section

#: Ops in the chart; the rest is summed up in one line below it.
CHART_OPS = 12


@dataclass(frozen=True)
class DearestOps:
    """``unit`` is time or calls; ``n_left`` ops are not in the chart."""

    bars: list[Bar]
    unit: str
    n_left: int


def chart_bars(ops: list[OpRow]) -> list[Bar]:
    """The largest, all bars on one scale."""
    timed = _is_timed(ops)
    unit = "device_time" if timed else "calls"
    amounts = {op.op: (op.total_us or 0.0) if timed else float(op.n_calls) for op in ops}
    largest = sorted(ops, key=lambda op: -amounts[op.op])[:CHART_OPS]
    scale = max((amounts[op.op] for op in largest), default=0.0)
    return [
        Bar(
            text.short_op(op.op),
            amounts[op.op],
            text.amount_text(unit, amounts[op.op]),
            segments(unit, op.us_by_status if timed else op.calls_by_status, scale),
            op.anchor,
        )
        for op in largest
        if amounts[op.op] > 0
    ]


def _is_timed(ops: list[OpRow]) -> bool:
    return any(op.total_us for op in ops)


def _title(material: Material) -> str:
    return "Where the time goes" if _is_timed(material.ops) else "Where the calls go"


def _build(material: Material) -> DearestOps | None:
    if not material.ops:
        return None
    unit = "time" if _is_timed(material.ops) else "calls"
    return DearestOps(chart_bars(material.ops), unit, max(0, len(material.ops) - CHART_OPS))


SECTION = Section("time", _title, _build, is_half=True)
