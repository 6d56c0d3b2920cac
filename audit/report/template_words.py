"""The words that the page's templates know: filters and functions that make numbers text, and text harmless.

jinja2 escapes all that they give.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from audit.codec import tensors_of
from audit.comparison import Comparison
from audit.places import Places
from audit.report import device_time, drift, text
from audit.report.inputs import input_rows
from audit.report.legend import READING_ORDER, STATUS_TEXTS, status_words
from audit.report.lost_time import lost_share_text, lost_text
from audit.report.rows import calls_text, safe_name
from audit.report.sections import errors, modules, roofline
from audit.report.sections.operators import sort_keys
from audit.report.sections.shapes import mark_path
from audit.report.ulp_bars import bars, bars_label
from audit.rules.places import describe, histogram
from audit.schema import Case, Status
from audit.verdicts import Finding

MAX_MESSAGE = 600
#: Numbers shown of a finding; rules give fewer.
MAX_DATA = 16


def environment(max_log: int, max_items: int) -> jinja2.Environment:
    """For the templates of the page. Each case shows ``max_log`` characters of a log and ``max_items`` of a list."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(_FILTERS)
    made.filters["log"] = lambda value: text.clipped(value, max_log)
    made.globals.update(_NAMES)
    made.globals["MAX_ITEMS"] = max_items
    return made


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
    return text.capital(head), text.capital(rest)


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


def sentence(value: str) -> str:
    """With a capital, on one line."""
    return text.one_line(text.capital(value), 600)


def n_tensors(case: Case) -> int:
    """Tensors among the arguments and the gradients that arrived."""
    return len(tensors_of(case.args, case.kwargs, case.grads))


def shape_of(status: Status) -> str:
    """The mark of a status, for a legend."""
    return mark_path(status, 0.0, 0.0, 5.0)


_FILTERS: Mapping[str, Any] = {
    "line": text.one_line,
    "message": lambda value: text.clipped(value, MAX_MESSAGE),
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
    "sentence": sentence,
    "input_rows": input_rows,
    "n_tensors": n_tensors,
    "si": roofline.si_text,
}
_NAMES: Mapping[str, Any] = {
    "STATUS_TEXTS": STATUS_TEXTS,
    "status_words": status_words,
    "READING_ORDER": READING_ORDER,
    "share": text.share_text,
    "rate": text.rate_text,
    "plural": text.plural,
    "calls_text": calls_text,
    "times_text": text.times_text,
    "short_op": text.short_op,
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
    "CHART_WIDTH": roofline.WIDTH,
    "CHART_HEIGHT": roofline.HEIGHT,
    "MAX_CHART_ROWS": roofline.MAX_ROWS,
    "HISTOGRAM_WIDTH": errors.WIDTH,
    "HISTOGRAM_HEIGHT": errors.HEIGHT,
    "ICICLE_WIDTH": modules.WIDTH,
    "MAX_LINKS": modules.MAX_LINKS,
    "leaves": modules.leaves,
    "shape_of": shape_of,
}
