"""The HTML report: one file that opens from disk and loads nothing, readable without JavaScript and on paper.

The page is rendered here, row by row, and a small script of our own sorts and filters what stands in it. A table widget
(itables with DataTables, Tabulator) was tried on paper and left out: each embeds 300 to 900 kB of script, builds rows
from data so that nothing stands there without JavaScript or in print, and none nests cases under ops accessibly.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from audit.comparison import Comparison
from audit.places import Places
from audit.report import device_time, drift, text
from audit.report.legend import READING_ORDER, STATUS_TEXTS, evidence_text
from audit.report.lost_time import lost_share_text, lost_text, step_limits
from audit.report.rows import CaseRow, OpRow, case_rows, coverage_of, op_rows, safe_name, status_counts
from audit.report.ulp_bars import bars, bars_label
from audit.rules.not_audited import shown_reason
from audit.rules.places import describe, histogram
from audit.rules.rates import ceiling_rows
from audit.rules.remedies import eligible
from audit.schema import Case, Status
from audit.verdicts import Coverage, Finding, Judgement

#: Ops in the chart; the rest is summed up in one line below it.
CHART_OPS = 15
#: One case of a thousand still shows in a coverage bar.
MIN_SEGMENT_PERCENT = 0.7
#: A case shows at most and at least so many characters of a log, and items of a list; in between, all logs and all
#: lists share a budget, so that 500 cases stay below 3 MB even where every one floods stderr. All is in run.jsonl.
LOG_LIMITS, LOG_BUDGET = (4000, 400), 400_000
ITEM_LIMITS, ITEM_BUDGET = (12, 4), 2500
MAX_MESSAGE = 600
#: Numbers shown of a finding; rules give fewer.
MAX_DATA = 16

_UNIT_LABELS = {"ops": "Operators", "calls": "Calls", "device_time": "Device time", "cases": "Cases"}


@dataclass(frozen=True)
class Segment:
    """A piece of a bar: ``start`` and ``width`` in percent of the bar's length, ``text`` its amount with unit."""

    status: Status
    amount: float
    text: str
    start: float
    width: float


@dataclass(frozen=True)
class Bar:
    """A labelled bar of segments; ``amount`` is its own total, ``anchor`` where a click leads."""

    label: str
    amount: float
    amount_text: str
    segments: tuple[Segment, ...]
    anchor: str = ""


def render(judgement: Judgement) -> str:
    """The whole page."""
    rows = case_rows(judgement)
    ops = op_rows(rows)
    template = _environment(*_limits(rows)).get_template("report.html")
    header = judgement.run.header
    libraries = device_time.library_rows(judgement)
    dearer, cheaper = device_time.sides(judgement.beside) if judgement.beside else ([], [])
    return template.render(
        judgement=judgement,
        header=header,
        evidence=evidence_text(header),
        ops=ops,
        n_cases=len(rows),
        counts=status_counts(judgement),
        coverage=coverage_bars(judgement),
        chart=chart_bars(ops),
        chart_unit="time" if _is_timed(ops) else "calls",
        n_chart_left=max(0, len(ops) - CHART_OPS),
        phases=_distinct(row.verdict.phase for row in rows),
        dtypes=_distinct(dtype for row in rows for dtype in row.dtypes),
        left_out=left_out(judgement),
        libraries=libraries,
        unowned=device_time.unowned_rows(judgement),
        limits=step_limits(judgement),
        alternatives=alternatives_text(judgement),
        ceilings=ceiling_rows(header.device, header.ceilings),
        dearer=dearer,
        cheaper=cheaper,
        drift=drift.drift_section(judgement),
    )


def alternatives_text(judgement: Judgement) -> str:
    """How much of what could be tried instead was tried, and what bounded it; empty where nothing was asked for."""
    settings = judgement.run.header.settings
    wanted = eligible(judgement) if "alternatives_limit_s" in settings else []
    if not wanted:
        return ""
    n_tried = sum(verdict.key in judgement.run.alternatives for verdict in wanted)
    begun = len(judgement.run.trying)
    return (
        f"Alternatives were tried for {n_tried:,} of {text.plural(len(wanted), 'case')} that have one, dearest first, "
        f"at most {settings.get('n_alternatives_cases', '?')} cases, {settings['alternatives_limit_s']} s."
        + (f" {text.plural(begun, 'of them was', 'of them were')} begun and never finished." if begun else "")
    )


def coverage_bars(judgement: Judgement) -> list[Bar]:
    """One bar per denominator that the judgement has; best first."""
    found = (coverage_of(judgement, unit) for unit in ("ops", "cases", "calls", "device_time"))
    return [
        Bar(
            _UNIT_LABELS[c.unit],
            c.total,
            _total_text(judgement, c),
            _segments(c.unit, _shares(c), c.total, MIN_SEGMENT_PERCENT),
        )
        for c in found
        if c
    ]


def _total_text(judgement: Judgement, coverage: Coverage) -> str:
    total = amount_text(coverage.unit, coverage.total)
    if coverage.unit != "device_time":
        return total
    n_timed = sum(verdict.device_us is not None for verdict in judgement.verdicts)
    return f"{total} over {n_timed:,} of {text.plural(len(judgement.verdicts), 'case')}"


def _shares(coverage: Coverage) -> list[tuple[Status, float]]:
    return [(status, coverage.by_status.get(status, 0.0)) for status in ("supported", *READING_ORDER[:-1])]


def chart_bars(ops: list[OpRow]) -> list[Bar]:
    """The ops that cost most: device time where there is any, else calls; all bars on one scale."""
    timed = _is_timed(ops)
    unit = "device_time" if timed else "calls"
    amounts = {op.op: (op.total_us or 0.0) if timed else float(op.n_calls) for op in ops}
    largest = sorted(ops, key=lambda op: -amounts[op.op])[:CHART_OPS]
    scale = max((amounts[op.op] for op in largest), default=0.0)
    return [
        Bar(
            text.short_op(op.op),
            amounts[op.op],
            amount_text(unit, amounts[op.op]),
            _segments(unit, op.us_by_status if timed else op.calls_by_status, scale),
            op.anchor,
        )
        for op in largest
        if amounts[op.op] > 0
    ]


def _is_timed(ops: list[OpRow]) -> bool:
    return any(op.total_us for op in ops)


def amount_text(unit: str, amount: float) -> str:
    """``12`` or ``3.4 ms``, as the unit asks."""
    return text.time_text(amount) if unit == "device_time" else text.count_text(amount)


def _segments(
    unit: str, shares: Iterable[tuple[Status, float]], total: float, least_percent: float = 0.0
) -> tuple[Segment, ...]:
    """Segments whose widths are shares of ``total``, none below ``least_percent``."""
    present = [(status, amount) for status, amount in shares if amount > 0 and total > 0]
    widths = [max(100 * amount / total, least_percent) for _, amount in present]
    shrink = min(1.0, 100 / sum(widths)) if widths else 1.0
    segments, start = [], 0.0
    for (status, amount), width in zip(present, (width * shrink for width in widths), strict=True):
        segments.append(Segment(status, amount, amount_text(unit, amount), round(start, 3), round(width, 3)))
        start += width
    return tuple(segments)


def _distinct(values: Iterable[str]) -> list[str]:
    return sorted(set(values))


def left_out(judgement: Judgement) -> list[tuple[str, str, int]]:
    """What has no answer: (what, why, calls). Inconclusive cases by rule code, then what never became a case."""
    doubts: dict[str, list[CaseRow]] = {}
    for row in case_rows(judgement):
        if row.status == "inconclusive":
            doubts.setdefault(row.findings[0].code if row.findings else "", []).append(row)
    answers = [
        (
            f"{text.plural(len(rows), 'inconclusive case')} {code}",
            ("for example: " if len(rows) > 1 else "")
            + (rows[0].findings[0].message if rows[0].findings else "no reason given"),
            sum(row.verdict.n_calls for row in rows),
        )
        for code, rows in doubts.items()
    ]
    skipped = [
        (item.what, shown_reason(item), item.n_calls or item.n_seen) for item in judgement.run.header.not_audited
    ]
    return sorted(answers, key=lambda item: -item[2]) + sorted(skipped, key=lambda item: -item[2])


# --- filters: the template's words ---------------------------------------------------------------------------------


def op_parts(op: str) -> tuple[str, str, str]:
    """Namespace, name and overload of ``aten::add.Tensor``, with their punctuation, made printable."""
    shown = text.one_line(op)
    namespace, mark, rest = shown.rpartition("::")
    name, dot, overload = rest.partition(".")
    return namespace + mark, name, dot + overload


def headline_parts(headline: str) -> tuple[str, str]:
    """("Not measured on AMD:", the rest) where the headline begins so, for the two are set in different sizes."""
    line = text.one_line(headline, 800)
    prefix = "not measured on amd:"
    head, rest = (line[: len(prefix)], line[len(prefix) :].strip()) if line.lower().startswith(prefix) else ("", line)
    return head[:1].upper() + head[1:], rest[:1].upper() + rest[1:]


def data_items(finding: Finding) -> list[tuple[str, str]]:
    """A finding's numbers as text, in the order the rule gave them; ``remedy`` is shown as a sentence of its own."""
    shown = [(name, value) for name, value in finding.data.items() if value not in (None, "") and name != "remedy"]
    return [(text.one_line(name, 60), _value_text(value)) for name, value in shown[:MAX_DATA]]


def _value_text(value: object) -> str:
    if isinstance(value, float) and math.isfinite(value):
        return text.count_text(value) if value.is_integer() and abs(value) < 1e15 else f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return text.one_line(str(value), 200)


def web_link(link: str) -> str:
    """``link`` where it is plain http(s), else nothing: a data file must not bring ``javascript:`` into the page."""
    return link if link.startswith(("https://", "http://")) and link.isprintable() and " " not in link else ""


def place_text(comparison: Comparison) -> str:
    """``[3, 1029]``, the worst element's index."""
    return f"[{', '.join(map(str, comparison.worst_index))}]" if comparison.worst_index else ""


def compared_text(comparison: Comparison) -> str:
    """``1.4 % of 117,440,512 elements exactly, all by a sketch``."""
    n, total = comparison.n_compared or 0, comparison.n_elements
    share = f"{100 * n / total:.2g} %" if total else "none"
    rest = "all by a sketch" if comparison.sketch is not None and not comparison.unseen_fraction else ""
    if comparison.unseen_fraction:
        others = "" if comparison.sketch is None else "the rest by a sketch, "
        rest = f"{others}{100 * comparison.unseen_fraction:.3g} % unseen"
    return ", ".join(filter(None, (f"{share} of {total:,} elements exactly", rest)))


def place_words(places: Places, case: Case | None, comparison: Comparison) -> str:
    """``rows 32 to 47 and columns 64 to 79 (one tile of 16 x 16)``."""
    return describe(places, case, comparison.name, comparison.n_compared)


def worst_first(comparisons: tuple[Comparison, ...]) -> list[Comparison]:
    """Outputs with something wrong before the others, so that a list cut short keeps them."""

    def trouble(c: Comparison) -> tuple[int, float]:
        n_wrong = c.n_nan_mismatch + c.n_inf_mismatch + c.n_unwritten + (c.n_different if c.standard == "exact" else 0)
        return n_wrong, c.worst_ratio

    return sorted(comparisons, key=trouble, reverse=True)


def _limits(rows: list[CaseRow]) -> tuple[int, int]:
    """(characters of a log, items of a list) that each case may show."""
    measured = [row.measurement for row in rows if row.measurement]
    logs = (len(log) for m in measured for o in (m.device, m.reference) for log in (o.message, o.stderr))
    lists = (len(items) for m in measured for items in (m.comparisons, m.device.warnings, m.path.kernels))
    n_loud = sum(length > LOG_LIMITS[1] for length in logs)
    n_long = sum(length > ITEM_LIMITS[1] for length in lists)
    return _share(LOG_BUDGET, n_loud, LOG_LIMITS), _share(ITEM_BUDGET, n_long, ITEM_LIMITS)


def _share(budget: int, n: int, limits: tuple[int, int]) -> int:
    most, least = limits
    return most if n == 0 else max(least, min(most, budget // n))


def _environment(max_log: int, max_items: int) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        {
            "line": text.one_line,
            "message": lambda value: text.clipped(value, MAX_MESSAGE),
            "log": lambda value: text.clipped(value, max_log),
            "count": text.count_text,
            "time": text.time_text,
            "error": text.error_text,
            "bytes": text.bytes_text,
            "headline_parts": headline_parts,
            "op_parts": op_parts,
            "data_items": data_items,
            "web_link": web_link,
            "place": place_text,
            "worst_first": worst_first,
            "compared": compared_text,
            "bars": bars,
            "bars_label": bars_label,
            "histogram": histogram,
            "sentence": lambda value: text.one_line(value[:1].upper() + value[1:], 600),
        }
    )
    names: dict[str, Any] = {
        "STATUS_TEXTS": STATUS_TEXTS,
        "READING_ORDER": READING_ORDER,
        "MAX_ITEMS": max_items,
        "share": text.share_text,
        "rate": text.rate_text,
        "plural": text.plural,
        "sort_keys": sort_keys,
        "MAX_SIDE_ROWS": device_time.MAX_SIDE_ROWS,
        "MAX_KERNELS": device_time.MAX_KERNELS,
        "cost_text": device_time.cost_text,
        "ratio_text": device_time.ratio_text,
        "lost_text": lost_text,
        "lost_share_text": lost_share_text,
        "anchor": safe_name,
        "place_words": place_words,
        "drift_ratio": drift.ratio_text,
        "DRIFT_WIDTH": drift.WIDTH,
        "DRIFT_HEIGHT": drift.HEIGHT,
    }
    environment.globals.update(names)
    return environment


def _sortable(ratio: float | None) -> str:
    """A number as JavaScript reads it, which knows Infinity only by overflow or by name."""
    if ratio is None or math.isnan(ratio):
        return ""
    return f"{ratio:.4g}" if math.isfinite(ratio) else "1e999"


def sort_keys(row: CaseRow | OpRow) -> dict[str, str]:
    """What the page's script sorts by, as data attributes; empty where there is nothing."""
    n_calls = row.verdict.n_calls if isinstance(row, CaseRow) else row.n_calls
    return {
        "data-rank": str(READING_ORDER.index(row.status)),
        "data-calls": str(n_calls),
        "data-us": "" if row.total_us is None else f"{row.total_us:.3f}",
        "data-ratio": _sortable(row.worst_ratio),
    }
