"""SVG badges for a README: how a run, the newest run of a model on a GPU, or a GPU stands. The evidence is in the text.

Only a measured badge is green or red: what was simulated, predicted, or measured elsewhere has a colour of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path

import jinja2

from audit.dashboard.contents import Contents
from audit.dashboard.links import gpu_badge, model_badge, run_badge
from audit.dashboard.rows import Share
from audit.dashboard.site_file import SiteFile

LABEL = "rocm-audit"
#: White text on each has a contrast of 4.5 or more (WCAG AA).
_GOOD, _MIXED, _BAD, _NOT_MEASURED = "#1a7f37", "#8a5a00", "#b3261e", "#57606a"
#: Widths of Verdana at 11 px, by kind of letter; ``textLength`` makes the rest fit in any font.
_NARROW, _WIDE = frozenset("fijlrtI.,:;'|()[]! "), frozenset("mwMW%@")


def site_files(contents: Contents) -> Iterator[SiteFile]:
    for gpu in contents.gpus():
        title = f"{gpu.name}: {gpu.share.text}, of {gpu.share.cases.text}"
        yield SiteFile(gpu_badge(gpu.slug), title, partial(badge, gpu.share, title))
    for model in contents.models():
        for run in model.newest:
            title = _title(run.source, run.stack.gpu, run.share, run.date)
            yield SiteFile(model_badge(model.slug, run.stack.gpu_slug), title, partial(badge, run.share, title))
    for run in contents.runs():
        title = _title(run.source, run.stack.gpu, run.share, run.date)
        yield SiteFile(run_badge(run.slug), title, partial(badge, run.share, title))


def _title(source: str, gpu: str, share: Share, date: str) -> str:
    when = f", {date}" if date else ""
    return f"{source} on {gpu}{when}: {share.text}, of {share.cases.text}"


def badge_text(share: Share) -> str:
    """``measured: 193 of 198 ok, 2 unknown``; where no number was compared (imported, predicted) nothing is ok."""
    total = share.tally.total
    how = f"imported, {share.evidence}" if share.is_imported else share.evidence
    if not total:
        return f"{how}: no case"
    if share.is_imported or share.evidence == "predicted":
        return f"{how}: findings in {share.tally.n_with_finding:,} of {total:,}"
    unknown = share.tally.count("inconclusive")
    told = f", {unknown:,} unknown" if unknown else ""
    return f"{share.evidence}: {share.tally.count('supported'):,} of {total:,} ok{told}"


def badge(share: Share, title: str) -> str:
    """The badge's SVG; ``title`` is told where a pointer rests."""
    text = badge_text(share)
    split, right = _width(LABEL) + 12, _width(text) + 12
    return _template().render(
        label=LABEL, text=text, title=title, width=split + right, split=split, right=right, colour=_colour(share)
    )


def _colour(share: Share) -> str:
    if share.evidence != "measured" or share.is_imported:
        return _NOT_MEASURED
    if share.tally.count("unsupported") or share.tally.count("divergent"):
        return _BAD
    return _GOOD if share.tally.total and share.tally.count("supported") == share.tally.total else _MIXED


def _width(text: str) -> int:
    return math.ceil(sum(4.2 if c in _NARROW else 10.5 if c in _WIDE else 7.0 for c in text))


@cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("templates"))
    return jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined).get_template(
        "badge.svg"
    )
