"""The samples in ``reports/sample`` are what their runs give today, and are fit to be seen: in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from audit.schema import IMPORTED
from audit.store import read_run
from tests.browser import BROWSER_MARKS, Browser, address_of, barriers, drain, media, print_pages, screen, visit
from tests.samples.made import REPORTED, SAMPLE, contents, make

REPORT, SITE = SAMPLE / "report" / "report.html", SAMPLE / "site"
#: Of each kind of page of the site one, the fullest by size.
SITE_PAGES = (
    "index.html",
    "matrix.html",
    "changes.html",
    "untested.html",
    "ops/*.html",
    "runs/*.html",
    "models/*.html",
)


def pages() -> Iterator[Path]:
    yield REPORT
    for pattern in SITE_PAGES:
        yield max(SITE.glob(pattern), key=lambda path: path.stat().st_size)


def test_the_samples_are_what_their_runs_give_today(tmp_path: Path) -> None:
    make(tmp_path)
    now, kept = contents(tmp_path), contents(SAMPLE)
    assert now.keys() == kept.keys(), "run `make samples`"
    assert [name for name in now if now[name] != kept[name]] == [], "run `make samples`"


def test_a_third_of_the_rows_of_the_report_has_findings() -> None:
    by_status = json.loads((REPORT.parent / "summary.json").read_text())["coverage"]["ops"]["by_status"]
    assert sum(by_status.values()) - by_status["supported"] >= sum(by_status.values()) / 3


def test_the_runs_are_of_each_kind_of_evidence_that_could_be_had() -> None:
    headers = {path.name: read_run(path).header for path in (SAMPLE / "runs").iterdir()}
    assert headers[REPORTED].evidence == "stand-in"
    kinds = {(header.evidence, header.source.kind == IMPORTED) for header in headers.values()}
    assert kinds == {
        ("simulated", False), ("stand-in", False), ("predicted", False), ("measured", True), ("stand-in", True),
    }  # fmt: skip


LOOKS = [(width, theme) for width in (390, 1280) for theme in ("light", "dark")]


class TestInABrowser:
    pytestmark = BROWSER_MARKS

    @pytest.mark.parametrize(("width", "theme"), LOOKS)
    def test_no_page_is_wider_than_its_screen_or_complains(self, browser: Browser, width: int, theme: str) -> None:
        with _look(browser, width, theme):
            for page in pages():
                drain(browser)
                visit(browser, address_of(page))
                wide = browser.execute_script("return document.documentElement.scrollWidth")
                assert wide <= width, f"{page.name} is {wide} pixels wide"
                assert drain(browser)[0] == [], page.name

    @pytest.mark.slow  # axe-core takes seconds for each large page
    @pytest.mark.parametrize(("width", "theme"), LOOKS)
    def test_no_page_shuts_anyone_out(self, browser: Browser, width: int, theme: str) -> None:
        with _look(browser, width, theme):
            for page in pages():
                visit(browser, address_of(page))
                assert barriers(browser) == [], page.name

    def test_each_page_prints(self, browser: Browser, tmp_path: Path) -> None:
        for page in pages():
            visit(browser, address_of(page))
            assert print_pages(browser, tmp_path) >= 1, page.name


@contextmanager
def _look(browser: Browser, width: int, theme: str) -> Iterator[None]:
    with screen(browser, width, mobile=width < 500), media(browser, prefers_color_scheme=theme):
        yield
