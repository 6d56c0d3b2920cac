"""The page for people without a mouse or without sight: axe-core looks at each state, keys do what they say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from audit.report.page import render
from audit.report.rows import case_rows
from audit.rules.judge import judge
from audit.verdicts import Judgement
from tests.browser import BROWSER_MARKS, Browser, barriers, drain, media, save, screen, type_into, until, visit
from tests.report.gpu_runs import ADD, MM, gpu_run

pytestmark = BROWSER_MARKS

#: Opens three ops with their worst cases and everything that folds in them, and the first folds of the other sections.
UNFOLD = """
[...document.querySelectorAll(".op .toggle")].slice(0, 3).forEach((button) => button.click());
[...document.querySelectorAll(".op:nth-of-type(-n+3) .case")].slice(0, 4).forEach((item) => { item.open = true; });
[...document.querySelectorAll(".case[open] .fold, .part > .fold, .plot .fold, .module details")]
  .slice(0, 24).forEach((item) => { item.open = true; });
"""
FOCUSABLE = (
    """return [...document.querySelectorAll(".case[open] .scroll")].every((item) => item.hasAttribute("tabindex"))"""
)


@pytest.fixture(scope="module")
def pages(
    make_judgement: Callable[..., Judgement], llama_judgement: Judgement, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Addresses: a real run with a fault of each kind, findings on AMD, and a GPU beside another."""
    folder = tmp_path_factory.mktemp("pages")
    cases = [
        (replace(case, key=f"{case.key}-{i}", n_calls=1 + i), us * (1 + i))
        for case, us in ((MM, 500.0), (ADD, 40.0))
        for i in range(3)
    ]
    here = gpu_run(make_judgement, *cases)
    there = gpu_run(make_judgement, *((case, us * 0.8) for case, us in cases), backend="cuda")
    worst = {row.verdict.key for row in case_rows(llama_judgement)[:30]}  # axe takes a second for each ten cases
    real = replace(llama_judgement, verdicts=tuple(v for v in llama_judgement.verdicts if v.key in worst))
    judged = {"real": real, "amd": make_judgement(20, backend="hip"), "beside": judge(here, other=there)}
    return {name: save(render(judgement), folder / f"{name}.html") for name, judgement in judged.items()}


@pytest.mark.parametrize(
    ("name", "theme", "width"), [("real", "light", 1280), ("amd", "dark", 390), ("beside", "dark", 1280)]
)
def test_axe_finds_no_barrier(browser: Browser, pages: dict[str, str], name: str, theme: str, width: int) -> None:
    with screen(browser, width), media(browser, prefers_color_scheme=theme):
        visit(browser, pages[name])
        browser.execute_script("localStorage.clear()")
        browser.execute_script(UNFOLD)
        until(lambda: browser.execute_script(FOCUSABLE))
        assert barriers(browser) == []


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("name", ["real", "beside"])
def test_nothing_is_wider_than_the_screen_and_nothing_is_logged(
    browser: Browser, pages: dict[str, str], name: str, width: int
) -> None:
    drain(browser)
    with screen(browser, width):
        visit(browser, pages[name])
        browser.execute_script(UNFOLD)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert drain(browser)[0] == []


def test_headings_go_down_by_one(browser: Browser, pages: dict[str, str]) -> None:
    visit(browser, pages["real"])
    script = "return [...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((h) => Number(h.tagName[1]))"
    levels = browser.execute_script(script)
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_keys_search_and_go_from_finding_to_finding(browser: Browser, pages: dict[str, str]) -> None:
    visit(browser, pages["real"])
    body = browser.find_element("tag name", "body")
    body.send_keys("n")
    until(lambda: "#case-" in browser.current_url)
    first = browser.current_url
    assert browser.execute_script("return document.activeElement.closest('.case').dataset.status") == "unsupported"
    browser.switch_to.active_element.send_keys("n")
    until(lambda: browser.current_url != first)
    browser.switch_to.active_element.send_keys("p")
    until(lambda: browser.current_url == first)
    browser.switch_to.active_element.send_keys("/")
    until(lambda: browser.execute_script("return document.activeElement.name") == "q")
    type_into(browser, "q", "n/p")
    assert browser.find_element("name", "q").get_attribute("value") == "n/p"


#: Keys as fast as they can come, without a moment between them; the finding that they lead to.
PRESSED = """
const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
[...arguments[0]].forEach(press);
const findings = [...document.querySelectorAll("#ops .case")].filter((item) => item.dataset.status !== "supported");
return findings.findIndex((item) => `#${item.id}` === location.hash);
"""


def test_keys_that_follow_at_once_go_on_from_each_other(browser: Browser, pages: dict[str, str]) -> None:
    visit(browser, pages["real"])
    assert browser.execute_script(PRESSED, "nnnp") == 1


def test_single_keys_can_be_turned_off_and_stay_off(browser: Browser, pages: dict[str, str]) -> None:
    visit(browser, pages["real"])
    browser.execute_script("document.getElementById('keys-on').click()")
    browser.refresh()
    try:
        assert browser.execute_script("return document.getElementById('keys-on').checked") is False
        address = browser.current_url
        browser.find_element("tag name", "body").send_keys("n")
        assert browser.current_url == address
    finally:
        browser.execute_script("localStorage.clear()")


def test_a_mark_of_the_chart_and_a_module_lead_to_their_cases(browser: Browser, pages: dict[str, str]) -> None:
    visit(browser, pages["beside"])
    mark = browser.find_element("css selector", ".plot a")
    assert browser.execute_script("return arguments[0].href.baseVal", mark).startswith("#case-")
    browser.execute_script("arguments[0].focus()", mark)
    browser.switch_to.active_element.send_keys("\n")
    until(lambda: browser.execute_script("return !!document.querySelector('.case[open]')"))
    visit(browser, pages["real"])
    browser.execute_script("document.querySelectorAll('.module details').forEach((item) => { item.open = true; })")
    browser.execute_script("document.querySelector('.leaves a').click()")
    until(lambda: browser.execute_script("return !!document.querySelector('.case[open]')"))


def test_the_answers_are_there_without_javascript_and_on_paper(
    browser: Browser, pages: dict[str, str], tmp_path: Path
) -> None:
    visit(browser, pages["real"])
    with media(browser, "print"):
        asked = browser.find_elements("css selector", "h1 .ask, .answer .ask")
        assert [element.text for element in asked] == [
            "May I migrate?",
            "What blocks?",
            "Are the numbers the same?",
            "What does a step cost?",
            "What do I change?",
        ]
        assert not browser.find_element("css selector", ".contents").is_displayed()


#: The label is back after a moment, which a busy machine may miss: so the page itself tells when it changes.
COPY = """
const done = arguments[arguments.length - 1], button = document.querySelector(".case[open] .copy");
new MutationObserver(() => done([button.dataset.copies, button.textContent])).observe(button, { childList: true });
button.click();
"""


def test_a_command_is_copied(browser: Browser, pages: dict[str, str]) -> None:
    visit(browser, pages["amd"])
    browser.execute_script(UNFOLD)
    source, label = browser.execute_async_script(COPY)
    assert label in ("Copied", "Selected: press Ctrl+C")
    assert browser.execute_script("return document.getElementById(arguments[0]).textContent", source).startswith(
        "python repro/"
    )
