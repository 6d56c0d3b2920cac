"""``history.xml``: what moved, as an Atom feed (RFC 4287). Each entry says its evidence first, as a page does.

A run without a date that can be has no entry: an entry must have one. The page of the history has it.
"""

from __future__ import annotations

import datetime
import uuid
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator

from audit.dashboard.change_rows import CaseChange, Transition
from audit.dashboard.contents import Contents
from audit.dashboard.links import HISTORY_FEED, run_page
from audit.dashboard.pages.evidence import banner_of
from audit.dashboard.rows import RunRow
from audit.dashboard.site_file import SiteFile
from audit.report.legend import status_words
from audit.report.text import clipped, one_line, plural, short_op
from audit.schema import Evidence

_NAMESPACE = "http://www.w3.org/2005/Atom"
MAX_ENTRIES = 60
#: Changed cases that an entry lists; worse ones come first.
MAX_CASES = 12


def site_files(contents: Contents) -> Iterator[SiteFile]:
    yield SiteFile(HISTORY_FEED, contents.digest("site"), lambda: _feed(contents))


def _feed(contents: Contents) -> str:
    entries = [item for item in contents.transitions(limit=MAX_ENTRIES) if item.after.date]
    banner = banner_of(contents.stacks(), "this feed")
    oldest = ""
    for run in contents.runs():
        oldest = run.slug
    feed = ElementTree.Element("feed", xmlns=_NAMESPACE)
    _add(feed, "title", "rocm-audit: what moved")
    _add(feed, "subtitle", f"{banner.title}. {banner.explanation}")
    # A site does not know where it is published: its oldest run tells it from others.
    _add(feed, "id", _identity("site", oldest))
    _add(feed, "updated", max((_updated(item.after) for item in entries), default="2026-01-01T00:00:00Z"))
    _add(feed, "generator", "rocm-audit", version=one_line(contents.site().audit_version, 40))
    _add(_add(feed, "author"), "name", "rocm-audit")
    _add(feed, "link", rel="alternate", type="text/html", href="history.html")
    for item in entries:
        _entry(feed, item)
    ElementTree.indent(feed, "")
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(feed, encoding="unicode")}\n'


def _entry(feed: ElementTree.Element, item: Transition) -> None:
    after = item.after
    moved = [f"{item.n_worse:,} worse", f"{item.n_better:,} better"]
    if item.n_unknown:
        moved.append(f"{item.n_unknown:,} to or from inconclusive")
    told = f"{', '.join(moved)} of {plural(item.n_common, 'case')}"
    where = f"{one_line(after.source, 80)} on {one_line(after.stack.gpu, 80)}"
    entry = _add(feed, "entry")
    _add(entry, "title", f"{after.stack.evidence_text}: {told}: {where}")
    _add(entry, "id", _identity(item.before.slug, after.slug))
    _add(entry, "updated", _updated(after))
    _add(entry, "link", rel="alternate", type="text/html", href=run_page(after.slug))
    listed = item.changes[:MAX_CASES]
    lines = [
        f"Differs around the two runs: {one_line(item.cause, 600)}.",
        *(_line(change, after.stack.evidence) for change in listed),
    ]
    if (n_left := item.n_worse + item.n_better + item.n_unknown - len(listed)) > 0:
        lines.append(f"and {plural(n_left, 'more case')}")
    _add(entry, "content", "\n".join(lines), type="text")


def _line(change: CaseChange, evidence: Evidence) -> str:
    was, is_now = (status_words(status, evidence).label for status in (change.before, change.after))
    why = f": {one_line(clipped(change.reason, 300), 300)}" if change.reason else ""
    return f"{one_line(short_op(change.op), 80)} {one_line(change.signature, 120)}: {was} → {is_now}{why}"


def _updated(run: RunRow) -> str:
    """In UTC, as RFC 3339 has it. The run has a date that can be."""
    made = datetime.datetime.fromisoformat(run.created.replace("Z", "+00:00"))
    made = made if made.tzinfo is not None else made.replace(tzinfo=datetime.timezone.utc)
    return made.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _identity(*names: str) -> str:
    """The same for the same names, in any build."""
    return f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, ' '.join(('rocm-audit', *names)))}"


def _add(parent: ElementTree.Element, name: str, text: str = "", **attributes: str) -> ElementTree.Element:
    child = ElementTree.SubElement(parent, name, attributes)
    child.text = text or None
    return child
