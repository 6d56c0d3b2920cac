"""The feed of what moved: Atom that a reader takes, with the evidence first, whatever a stranger's names are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

from audit.dashboard.catalog import Catalog
from audit.dashboard.feed import site_files
from tests.dashboard.made_contents import MadeContents
from tests.dashboard.made_runs import ROCM_71, ROCM_72, SIM, healthy_keys, write_run
from tests.dashboard.site_on_disk import text_of

CatalogOf = Callable[[Path], Catalog]
ATOM = "{http://www.w3.org/2005/Atom}"
KEYS = healthy_keys(3)


def feed(contents: Catalog | MadeContents) -> ElementTree.Element:
    [file] = site_files(contents)
    assert file.path == "history.xml"
    return ElementTree.fromstring(text_of(file))


def told(element: ElementTree.Element, name: str) -> str:
    [child] = element.findall(f"{ATOM}{name}")
    return child.text or ""


def test_an_entry_says_what_moved_where_beside_what_differs(catalog_of: CatalogOf, tmp_path: Path) -> None:
    write_run(tmp_path / "a", keys=KEYS, wrong=KEYS[:1], environment=ROCM_71, created="2026-11-01T23:30:00-02:00")
    write_run(tmp_path / "b", keys=KEYS, raising=KEYS[1:], environment=ROCM_72, created="2026-11-03T10:00:00+02:00")
    found = feed(catalog_of(tmp_path))
    [entry] = found.findall(f"{ATOM}entry")
    assert told(entry, "title") == "measured: 2 worse, 1 better of 3 cases: llama_train.py on AMD Instinct MI300X"
    assert told(entry, "updated") == told(found, "updated") == "2026-11-03T08:00:00Z"
    lines = told(entry, "content").splitlines()
    assert lines[0].startswith("Differs around the two runs: torch 2.12.1+rocm7.1 → 2.13.0+rocm7.2; ")
    assert [re.search(r": (\w+ → \w+)", line)[1] for line in lines[1:]] == [  # type: ignore[index]
        "supported → unsupported", "supported → unsupported", "divergent → supported"
    ]  # fmt: skip
    [link] = entry.findall(f"{ATOM}link")
    assert re.fullmatch(r"runs/llama-train-py-2026-11-03-[0-9a-f]{12}\.html", link.get("href") or "")


def test_a_simulated_change_never_looks_measured_and_a_run_without_a_date_has_no_entry(
    catalog_of: CatalogOf, tmp_path: Path
) -> None:
    write_run(tmp_path / "a", keys=KEYS, device=SIM, created="2026-11-01T10:00:00+00:00")
    write_run(tmp_path / "b", keys=KEYS, device=SIM, wrong=KEYS[:1], created="2026-11-02T10:00:00+00:00")
    write_run(tmp_path / "c", keys=KEYS, device=SIM, created="1970-01-01T10:00:00+00:00")
    found = feed(catalog_of(tmp_path))
    assert [told(entry, "title").partition(":")[0] for entry in found.findall(f"{ATOM}entry")] == ["simulated"]
    assert told(found, "subtitle").startswith("Simulated · not measured on AMD. ")


def test_entries_have_what_the_standard_asks_for_and_names_stay_text() -> None:
    hostile = ("</title><script>alert(1)</script>&", "]]>\0\ufffe\ud800", "javascript:alert(1)")
    found = feed(MadeContents(n_runs=30, n_changes=60, names=hostile, text=" ".join(hostile)))
    entries = found.findall(f"{ATOM}entry")
    assert len(entries) > 3
    for element in (found, *entries):
        assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", told(element, "id"))
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", told(element, "updated"))
        assert told(element, "title")
    assert len({told(entry, "id") for entry in entries}) == len(entries)
    names = {element.tag.removeprefix(ATOM) for element in found.iter()}
    assert names == {
        "feed", "title", "subtitle", "id", "updated", "generator", "author", "name", "link", "entry", "content"
    }  # fmt: skip
