"""Badges: the evidence stands in the text, only a measured one is green or red, and a name is never markup."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from audit.dashboard.badges import badge, badge_text
from audit.dashboard.rows import CaseSet, Share, Tally
from audit.schema import Evidence, Status

GREEN, AMBER, RED, GREY = "#1a7f37", "#8a5a00", "#b3261e", "#57606a"
SVG = "{http://www.w3.org/2000/svg}"


def share(evidence: Evidence, *counts: tuple[Status, int], is_imported: bool = False) -> Share:
    return Share(evidence, is_imported, Tally(counts), CaseSet("m.py", "5f0c6d1a2b3c", 198, ("0.1.0",)))


GOOD: tuple[Status, int] = ("supported", 197)


def test_the_text_says_the_evidence_and_what_is_not_known() -> None:
    assert badge_text(share("simulated", GOOD, ("inconclusive", 1))) == "simulated: 197 of 198 ok, 1 unknown"
    assert badge_text(share("measured", GOOD, ("divergent", 1))) == "measured: 197 of 198 ok"
    assert badge_text(share("predicted", GOOD)) == "predicted: findings in 0 of 197"
    assert badge_text(share("measured", GOOD, ("slow", 1), is_imported=True)) == (
        "imported, measured: findings in 1 of 198"
    )
    assert badge_text(share("measured")) == "measured: no case"


@pytest.mark.parametrize(
    ("of", "colour"),
    [
        (share("measured", GOOD), GREEN),
        (share("measured", GOOD, ("slow", 1)), AMBER),
        (share("measured", GOOD, ("inconclusive", 1)), AMBER),
        (share("measured", GOOD, ("divergent", 1)), RED),
        (share("measured", GOOD, ("unsupported", 1)), RED),
        (share("measured"), AMBER),
        (share("simulated", GOOD), GREY),
        (share("stand-in", GOOD, ("divergent", 1)), GREY),
        (share("predicted", GOOD), GREY),
        (share("measured", GOOD, is_imported=True), GREY),
    ],
)
def test_only_what_was_measured_is_green_amber_or_red(of: Share, colour: str) -> None:
    [path] = ElementTree.fromstring(badge(of, "title")).iter(f"{SVG}path")
    assert path.get("fill") == colour


def test_a_badge_is_xml_whatever_the_names_are() -> None:
    hostile = '</title><script>alert("1")</script>&'
    root = ElementTree.fromstring(badge(share("measured", GOOD), hostile))
    assert [element.tag for element in root.iter() if "script" in element.tag] == []
    assert root.findtext(f"{SVG}title") == hostile
    assert root.get("aria-label") == "rocm-audit: measured: 197 of 197 ok"
