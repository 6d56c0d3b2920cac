"""Templates to pages: what a template may say, and how strangers' text becomes harmless. jinja2 escapes all of it."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2

from audit.dashboard import links
from audit.dashboard.badges import badge_text
from audit.dashboard.pages import places
from audit.dashboard.pages.assets import ASSETS_VERSION
from audit.dashboard.pages.evidence import banner_of, texture
from audit.dashboard.pages.kinds import KINDS
from audit.dashboard.rows import Observation, Stack, Tally
from audit.report import text
from audit.report.legend import READING_ORDER, STATUS_TEXTS, status_words
from audit.report.template_words import headline_parts, op_parts, web_link
from audit.rules.coverage import percentage
from audit.schema import Evidence, Status

TEMPLATES = Path(__file__).resolve().parent.parent / "templates"
MAX_MESSAGE = 600
#: Signs of stacks beside a folded signature.
MAX_STRIP = 12
#: Changed cases of a release that are listed, and of each step of a history: worse ones come first.
MAX_CHANGES_SHOWN, MAX_CHANGES_BRIEF = 60, 8
#: Entries of what a stranger's file may have any number of: environment, settings, what was not audited.
MAX_ITEMS = 200
#: Devices of a model in the list of models.
MAX_NEWEST = 6

#: Stands below tables of cases.
MEASURES = (
    "Error ÷ noise is the largest error of a case over the noise floor of its dtype and algorithm. Of the limit is the "
    "least time that a call can take on the device, over the time it took: bytes that fit the last cache count nothing "
    "there, whereas a finding of slowness counts them all. Times of a simulated device are those of a CPU."
)


def page(template: str, path: str, **names: Any) -> str:
    """The text of a page that will lie at ``path``: links in it lead from there."""
    root = "../" * path.count("/")
    return _environment().get_template(template).render(root=root, path=path, **names)


@functools.cache
def macro(template: str, name: str) -> Any:
    """One macro of a template, to be called for each of many rows."""
    return getattr(_environment().get_template(template).module, name)


def stack_label(stack: Stack) -> str:
    """``AMD Instinct MI300X · ROCm 7.2.1 · torch 2.13.0``."""
    return " · ".join(filter(None, (stack.gpu, version_label(stack))))


def version_label(stack: Stack) -> str:
    """``ROCm 7.2.1 · torch 2.13.0``."""
    return " · ".join(filter(None, (stack.runtime, torch_label(stack))))


def torch_label(stack: Stack) -> str:
    """``torch 2.13.0``; what stands there where it is no version."""
    return f"torch {stack.torch}" if stack.torch[:1].isdigit() else stack.torch


def token(value: str) -> str:
    """A stranger's word as a word of the filters: without blanks, quotes or bars."""
    return quote(value, safe="")


def levels(stacks: Iterable[Stack]) -> list[tuple[str, bool]]:
    """(evidence, is imported) of these stacks, each once."""
    return list(dict.fromkeys((stack.evidence, stack.is_imported) for stack in stacks))


def facets(**values: str) -> str:
    """``status:slow phase:forward``: what a row of a list can be filtered by."""
    return " ".join(f"{name}:{token(value)}" for name, value in values.items() if value)


def observation_facets(stacks: dict[str, Stack], seen: Observation) -> str:
    """What one observation of a case can be filtered by: status and stack must be those of the same one."""
    stack = stacks[seen.stack_slug]
    return facets(status=seen.status, stack=seen.stack_slug, evidence=stack.evidence_text)


def worst_by_level(seen: Iterable[Observation], stacks: dict[str, Stack]) -> list[str]:
    """``divergent, simulated``: the worst status at each evidence level, for those who do not see the signs."""
    worst_of: dict[tuple[str, Evidence], Status] = {}
    for one in seen:
        stack = stacks[one.stack_slug]
        level = (stack.evidence_text, stack.evidence)
        worst_of[level] = min(worst_of.get(level, one.status), one.status, key=READING_ORDER.index)
    return [f"{status_words(status, evidence).label}, {text}" for (text, evidence), status in worst_of.items()]


def ratio_text(ratio: float | None, allowance: float | None = None) -> str:
    """``412×``, ``412× of 16×``: the largest error over its noise floor, and what the standard allows."""
    if ratio is None:
        return "–"
    allowed = f" of {text.error_text(allowance)}×" if allowance is not None and ratio > allowance else ""
    return f"{text.error_text(ratio)}×{allowed}"


def segments(tally: Tally) -> list[tuple[Status, int, float, float]]:
    """(status, cases, start, width) of a bar's pieces, best first; in percent, no piece thinner than one can see."""
    order: tuple[Status, ...] = ("supported", *READING_ORDER[:-1])
    present = [(status, tally.count(status)) for status in order if tally.count(status)]
    widths = [max(100 * count / tally.total, 0.8) for _, count in present]
    scale = 100 / sum(widths) if widths else 1.0
    found, start = [], 0.0
    for (status, count), width in zip(present, widths, strict=True):
        found.append((status, count, round(start, 2), round(width * scale, 2)))
        start += width * scale
    return found


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        {
            "line": text.one_line,
            "message": lambda value: text.clipped(value, MAX_MESSAGE),
            "count": text.count_text,
            "time": text.time_text,
            "error": text.error_text,
            "web_link": web_link,
            "op_parts": op_parts,
            "headline_parts": headline_parts,
            "short_op": text.short_op,
            "all_stacks": lambda gpus: [stack for gpu in gpus for stack in gpu.stacks],
            "levels": levels,
            "own_levels": lambda gpus: list(dict.fromkeys((gpu.evidence, gpu.is_imported) for gpu in gpus)),
            "twice": lambda value: (value, value),
            "named": lambda gpus: [(gpu.slug, f"{gpu.name}, {gpu.stacks[0].evidence_text}") for gpu in gpus],
            "uncounted": lambda statuses: [(status, None) for status in statuses],
            "worst_by_level": worst_by_level,
            "worst_first": lambda statuses: sorted(statuses, key=READING_ORDER.index),
            "number": lambda value: "" if value is None else f"{value:.6g}",
        }
    )
    names: dict[str, Any] = {
        "STATUS_TEXTS": STATUS_TEXTS,
        "status_words": status_words,
        "READING_ORDER": READING_ORDER,
        "assets_version": ASSETS_VERSION,
        "plural": text.plural,
        "percentage": percentage,
        "links": links,
        "places": places,
        "banner_of": banner_of,
        "badge_text": badge_text,
        "texture": texture,
        "stack_label": stack_label,
        "version_label": version_label,
        "torch_label": torch_label,
        "facets": facets,
        "observation_facets": observation_facets,
        "ratio_text": ratio_text,
        "segments": segments,
        "KINDS": KINDS,
        "MEASURES": MEASURES,
        "MAX_STRIP": MAX_STRIP,
        "MAX_CHANGES_SHOWN": MAX_CHANGES_SHOWN,
        "MAX_CHANGES_BRIEF": MAX_CHANGES_BRIEF,
        "MAX_ITEMS": MAX_ITEMS,
        "MAX_NEWEST": MAX_NEWEST,
    }
    made.globals.update(names)
    return made
