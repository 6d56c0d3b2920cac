"""The page in a real browser: headless Chromium sorts, filters, searches, opens, prints, and asks for nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from audit.report.page import render
from audit.report.rows import case_rows, op_rows
from audit.verdicts import Judgement
from tests.browser import (
    BROWSER_MARKS,
    Browser,
    drain,
    media,
    press,
    print_pages,
    save,
    screen,
    type_into,
    until,
    visit,
    without_javascript,
)

pytestmark = BROWSER_MARKS


@pytest.fixture(scope="module")
def page(make_judgement: Callable[..., Judgement], tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report with 60 cases, 24 of them with findings."""
    return save(render(make_judgement(60)), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def llama_page(llama_judgement: Judgement, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of the report of a real run with findings of most kinds."""
    return save(render(llama_judgement), tmp_path_factory.mktemp("llama_page") / "report.html")


@pytest.fixture
def opened(browser: Browser, page: str) -> Browser:
    """The page, freshly loaded in the system's own theme."""
    visit(browser, page)
    browser.execute_script("localStorage.clear(); delete document.documentElement.dataset.theme")
    return browser


def ops(browser: Browser, column: int = 0) -> list[str]:
    """The visible rows of the table, top to bottom, by the text of one column."""
    script = """return [...document.querySelectorAll("#ops tbody.op")].filter((b) => b.getClientRects().length)
        .map((b) => b.querySelector(".head").children[arguments[0]].textContent.trim())"""
    return list(browser.execute_script(script, column))


def shown_cases(browser: Browser) -> list[str]:
    """Status of each case that the filters leave, also of those in folded rows."""
    script = """return [...document.querySelectorAll("tbody.op:not([hidden]) .case:not([hidden])")]
        .map((c) => c.dataset.status)"""
    return list(browser.execute_script(script))


def test_sorting_by_a_column_orders_the_rows_and_a_second_click_reverses_them(opened: Browser) -> None:
    before = ops(opened)
    press(opened, '[data-sort="op"]')
    ascending = ops(opened)
    assert ascending == sorted(before) != before
    press(opened, '[data-sort="op"]')
    assert ops(opened) == ascending[::-1]
    header = opened.find_element("css selector", '[data-sort="op"]').find_element("xpath", "..")
    assert header.get_attribute("aria-sort") == "descending"


def test_sorting_by_calls_starts_with_the_most(opened: Browser) -> None:
    press(opened, '[data-sort="calls"]')
    calls = [int(text.replace(",", "")) for text in ops(opened, 3)]
    assert len(calls) == 16
    assert calls == sorted(calls, reverse=True)


def test_a_status_filter_leaves_its_cases_only_and_clearing_brings_all_back(opened: Browser) -> None:
    assert len(shown_cases(opened)) == 60
    opened.execute_script('document.querySelector("[name=status][value=divergent]").click()')
    until(lambda: len(shown_cases(opened)) < 60)
    assert shown_cases(opened) == ["divergent"] * 6
    assert opened.find_element("id", "shown").text == "6 of 60 cases, in 6 ops"
    press(opened, "#clear")
    until(lambda: len(shown_cases(opened)) == 60)


@pytest.mark.parametrize(
    ("name", "text", "n_cases"),
    [
        ("op", "addmm", 4),
        ("q", "Memory access fault", 6),
        ("q", "IndexError", 6),
        ("phase", "backward", 20),
        ("dtype", "int64", 4),
    ],
)
def test_a_field_filters_the_cases(opened: Browser, name: str, text: str, n_cases: int) -> None:
    type_into(opened, name, text)
    until(lambda: len(shown_cases(opened)) == n_cases)


def test_what_nothing_matches_says_so(opened: Browser) -> None:
    type_into(opened, "q", "no such thing anywhere")
    until(lambda: ops(opened) == [])
    assert opened.find_element("id", "nothing").is_displayed()


def test_filters_and_order_live_in_the_address(opened: Browser, page: str) -> None:
    opened.execute_script('document.querySelector("[name=status][value=unsupported]").click()')
    type_into(opened, "op", "m")
    press(opened, '[data-sort="us"]')
    until(lambda: "op=m" in opened.current_url and "sort=-us" in opened.current_url)
    until(lambda: len(ops(opened)) < 16)  # sorting has written the address; the filters wait for the last key
    address, rows = opened.current_url, ops(opened)
    assert "status=unsupported" in address
    assert rows
    visit(opened, address)
    assert ops(opened) == rows


def test_a_case_opens_by_its_address_and_shows_its_evidence(opened: Browser, page: str) -> None:
    key = opened.execute_script("return document.querySelector('.case[data-status=unsupported]').id")
    assert not opened.find_element("id", key).is_displayed()
    visit(opened, f"{page}#{key}")
    case = opened.find_element("id", key)
    until(case.is_displayed)
    assert "Memory access fault by GPU node-1" in case.text
    assert "seen again alone" in case.text
    assert case.find_element("css selector", "a[href^='repro/']").text == f"repro/{key.removeprefix('case-')}.py"


def test_a_row_opens_and_closes_from_the_keyboard(opened: Browser) -> None:
    toggle = opened.find_element("css selector", "#ops .toggle")
    case = opened.find_element("css selector", "#ops .case")
    assert (toggle.get_attribute("aria-expanded"), case.is_displayed()) == ("false", False)
    toggle.send_keys("\n")
    assert (toggle.get_attribute("aria-expanded"), case.is_displayed()) == ("true", True)
    summary = case.find_element("css selector", "summary")
    summary.send_keys("\n")
    assert case.find_element("css selector", ".findings").is_displayed()
    toggle.send_keys(" ")
    assert not case.is_displayed()


def test_the_theme_button_turns_light_into_dark_and_is_remembered(opened: Browser) -> None:
    def background() -> str:
        return str(opened.execute_script("return getComputedStyle(document.body).backgroundColor"))

    light = background()
    press(opened, "#theme")
    dark = background()
    assert (light, dark) == ("rgb(251, 251, 249)", "rgb(17, 20, 24)")

    def is_remembered() -> bool:
        # Chromium stores by another process, and may lose what a page says right before it is left: a script is faster
        # than a hand, so it waits, and chooses again what was lost.
        time.sleep(0.3)
        opened.refresh()
        if background() == light:
            press(opened, "#theme")
            return False
        return True

    until(is_remembered)
    assert opened.find_element("id", "theme").text == "Light theme"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_stands_out_from_its_background_by_4_5_to_1(opened: Browser, theme: str) -> None:
    opened.execute_script("document.documentElement.dataset.theme = arguments[0]", theme)
    press(opened, "#expand")
    assert opened.execute_script(FAINT_TEXTS) == []


#: WCAG 2.2, 1.4.3: contrast of every visible text node with the nearest opaque background.
FAINT_TEXTS = """
const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
const linear = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
const light = (c) => { const [r, g, b] = rgb(c).slice(0, 3).map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (e) => {
  for (; e; e = e.parentElement) {
    const c = getComputedStyle(e).backgroundColor;
    if ((rgb(c)[3] ?? 1) > 0.99) return c;
  }
  return "rgb(255, 255, 255)";
};
const faint = new Set(), walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let node; (node = walker.nextNode());) {
  const e = node.parentElement;
  if (!node.data.trim() || !e.getClientRects().length || e.closest(".sep")) continue;
  const [a, b] = [light(getComputedStyle(e).color), light(behind(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) faint.add(`${e.className || e.tagName}: ${ratio.toFixed(2)} ${node.data.trim().slice(0, 30)}`);
}
return [...faint];
"""


def test_on_a_phone_nothing_is_wider_than_the_screen(opened: Browser) -> None:
    with screen(opened, 390, mobile=True):
        press(opened, "#expand")
        assert opened.execute_script("return document.documentElement.scrollWidth") <= 390
        script = "return [...document.querySelectorAll('.case')].map((c) => c.getBoundingClientRect().right)"
        assert max(opened.execute_script(script)) <= 390
        names = "return [...document.querySelectorAll('.opname')].map((n) => n.getBoundingClientRect().width)"
        assert min(opened.execute_script(names)) > 90


def test_the_print_holds_every_case_open_and_no_controls(opened: Browser, tmp_path: Path) -> None:
    n_pages = print_pages(opened, tmp_path)
    assert n_pages >= 8  # 60 open cases; folded they are three pages
    # About an A4 sheet: no column may be left out for want of room.
    with media(opened, "print"), screen(opened, 650, 900):
        assert not opened.find_element("id", "filters").is_displayed()
        assert opened.find_element("css selector", ".banner").is_displayed()
        assert all(head.is_displayed() for head in opened.find_elements("css selector", "#ops > thead th"))
        opened.execute_script("dispatchEvent(new Event('beforeprint'))")
        script = (
            "return [...document.querySelectorAll('.case .inside')].filter((e) => e.getClientRects().length).length"
        )
        assert opened.execute_script(script) == 60
        opened.execute_script("dispatchEvent(new Event('afterprint'))")
        assert opened.execute_script("return document.querySelectorAll('.case[open]').length") == 0


def test_the_print_of_a_filtered_page_holds_what_is_shown_and_says_so(opened: Browser, tmp_path: Path) -> None:
    whole = print_pages(opened, tmp_path)
    type_into(opened, "op", "addmm")
    until(lambda: len(shown_cases(opened)) == 4)
    assert print_pages(opened, tmp_path) < whole
    note = opened.find_element("id", "filter-note").get_attribute("textContent")
    assert note == "Filtered: 4 of 60 cases are shown (op addmm)."


def test_without_javascript_every_case_is_there_to_read(browser: Browser, page: str) -> None:
    with without_javascript(browser):
        visit(browser, page)
        summaries = browser.find_elements("css selector", ".case > summary")
        assert len(summaries) == 60
        assert all(summary.is_displayed() for summary in summaries)
        assert not browser.find_element("id", "filters").is_displayed()


def test_the_report_of_a_real_run_sorts_filters_opens_and_prints(
    browser: Browser, llama_page: str, llama_judgement: Judgement, tmp_path: Path
) -> None:
    rows = case_rows(llama_judgement)
    visit(browser, llama_page)
    before = ops(browser)
    assert before == [op.op for op in op_rows(rows)]
    assert shown_cases(browser) == [case.status for op in op_rows(rows) for case in op.cases]
    press(browser, '[data-sort="calls"]')
    calls = {op.op: op.n_calls for op in op_rows(rows)}
    assert [calls[op] for op in ops(browser)] == sorted(calls.values(), reverse=True)
    browser.execute_script('document.querySelector("[name=status][value=divergent]").click()')
    until(lambda: set(shown_cases(browser)) == {"divergent"})
    wrong = [row for row in rows if row.status == "divergent"]
    assert len(shown_cases(browser)) == len(wrong) >= 5
    assert set(ops(browser)) == {row.verdict.op for row in wrong}
    visit(browser, f"{llama_page}#case-{wrong[0].anchor}")
    case = browser.find_element("id", f"case-{wrong[0].anchor}")
    until(case.is_displayed)
    assert wrong[0].findings[0].message in case.text
    assert "transformers/models/llama/modeling_llama.py" in case.text
    assert print_pages(browser, tmp_path) > 40


@pytest.mark.parametrize("kind", ["made", "hostile", "real"])
def test_nothing_is_logged_and_no_request_leaves(
    browser: Browser, page: str, llama_page: str, hostile_judgement: Judgement, tmp_path: Path, kind: str
) -> None:
    hostile = save(render(hostile_judgement), tmp_path / "hostile.html")
    address = {"made": page, "hostile": hostile, "real": llama_page}[kind]
    drain(browser)
    visit(browser, address)
    press(browser, "#expand")
    type_into(browser, "q", "a")
    until(lambda: "q=a" in browser.current_url)
    press(browser, '[data-sort="ratio"]')
    print_pages(browser, tmp_path)
    logged, requests = drain(browser)
    assert logged == []
    assert [url for url in requests if not url.startswith(("file://", "data:", "about:"))] == []
    assert len([url for url in requests if url.startswith("file://")]) == 1


def test_hostile_names_become_text_and_never_elements(
    browser: Browser, hostile_judgement: Judgement, tmp_path: Path
) -> None:
    visit(browser, save(render(hostile_judgement), tmp_path / "hostile.html"))
    counted = browser.execute_script(
        "return [document.scripts.length, document.querySelectorAll('[onmouseover]').length,"
        " [...document.querySelectorAll('a')].filter((a) => !['file:', 'https:']"
        ".includes(new URL(a.getAttribute('href'), location).protocol)).length]"
    )
    assert counted == [2, 0, 0]
    assert browser.find_element("css selector", ".headline").text == "<script>alert(1)</script>"
    links = browser.execute_script(
        "return [...document.querySelectorAll('a[href^=repro]')].map((a) => a.getAttribute('href'))"
    )
    assert links
    assert all(link.count("/") == 1 and ".." not in link for link in links)
