"""A site in a real browser, from a disk and from a server: it filters, searches, prints, and asks for nothing else."""

from __future__ import annotations

import functools
import http.server
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from audit.dashboard.links import op_slug
from tests.browser import (
    BROWSER_MARKS,
    Browser,
    address_of,
    barriers,
    drain,
    media,
    press,
    print_pages,
    screen,
    type_into,
    until,
    visit,
    without_javascript,
)
from tests.dashboard.made_contents import DEVICES, MadeContents
from tests.dashboard.made_runs import healthy_keys
from tests.dashboard.sample_site import sample_site
from tests.dashboard.site_on_disk import write_site

pytestmark = BROWSER_MARKS

HOSTILE = (
    "<script>document.title='taken'</script>",
    "\"onmouseover='document.title=1'",
    "javascript:document.title='taken'",
    "{{ 7 * 7 }}{% raw %}",
    "</script><img src=x onerror=document.title='taken'>",
    "\u05d0\u05d1\u05d2 right to left",
    "x" * 3000,
)
#: Lists that do not fit their pages.
LONG = MadeContents(n_ops=260, n_runs=205, n_models=4, n_cases=1300, n_signatures=260, devices=DEVICES[:2])
#: One page of each kind.
KINDS = ("index", "matrix", "op", "gpu", "model", "run", "runs", "changes", "history", "untested", "left-out", "about")


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return sample_site(tmp_path_factory.mktemp("runs"), tmp_path_factory.mktemp("real"))


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site whose lists do not fit their pages."""
    slug = op_slug("aten::mm.default")
    wanted = f"(assets|matrix.html|data/(matrix|search)|ops/{slug}|data/op-{slug}|(runs/|data/run-)run-00000-)"
    return write_site(LONG, tmp_path_factory.mktemp("long"), wanted)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of strangers."""
    contents = MadeContents(n_ops=10, n_models=6, n_runs=10, names=HOSTILE, text=" ".join(HOSTILE))
    return write_site(contents, tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def served(real: Path) -> Iterator[str]:
    """The address of the site behind a server of this machine."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(real)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def page_of(site: Path, kind: str) -> Path:
    """A page of this kind; of ops, devices, models and runs the first by name."""
    folder = {"op": "ops", "gpu": "gpus", "model": "models", "run": "runs"}.get(kind)
    return sorted((site / folder).glob("*.html"))[0] if folder else site / f"{kind}.html"


def rows(browser: Browser, selector: str = "#matrix tbody tr") -> list[str]:
    """The first line of each row that is there."""
    script = (
        "return [...document.querySelectorAll(arguments[0])].map((r) => r.querySelector('.opname, th').textContent)"
    )
    return list(browser.execute_script(script, selector))


def shown(browser: Browser) -> str:
    return str(browser.find_element("id", "shown").text)


# --- every page ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_from_a_disk_logs_nothing_and_takes_only_files_of_its_site(
    browser: Browser, real: Path, kind: str
) -> None:
    visit(browser, address_of(page_of(real, kind)))
    drain(browser)
    visit(browser, address_of(page_of(real, kind)))
    browser.find_element("id", "search").send_keys("mm")
    until(lambda: browser.find_elements("css selector", "#results li"))
    logged, requests = drain(browser)
    assert logged == []
    assert [url for url in requests if not url.startswith((address_of(real), "about:", "data:"))] == []


@pytest.mark.parametrize("kind", ["index", "matrix", "op", "run"])
def test_a_page_from_a_server_logs_nothing_and_takes_only_files_of_its_site(
    browser: Browser, real: Path, served: str, kind: str
) -> None:
    drain(browser)
    visit(browser, f"{served}/{page_of(real, kind).relative_to(real).as_posix()}")
    browser.find_element("id", "search").send_keys("mm")
    until(lambda: browser.find_elements("css selector", "#results li"))
    logged, requests = drain(browser)
    assert logged == []
    assert [url for url in requests if not url.startswith((served, "about:", "data:"))] == []


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_barrier(browser: Browser, real: Path, kind: str) -> None:
    theme = "dark" if KINDS.index(kind) % 2 else "light"
    with media(browser, prefers_color_scheme=theme):
        visit(browser, address_of(page_of(real, kind)))
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        assert barriers(browser) == []


@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_barrier_on_a_phone_in_the_other_theme(browser: Browser, real: Path, kind: str) -> None:
    theme = "light" if KINDS.index(kind) % 2 else "dark"
    with media(browser, prefers_color_scheme=theme), screen(browser, 390, mobile=True):
        visit(browser, address_of(page_of(real, kind)))
        browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        assert barriers(browser) == []


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, real: Path, hostile: Path, kind: str) -> None:
    with screen(browser, 390, mobile=True):
        for site in (real, hostile):
            visit(browser, address_of(page_of(site, kind)))
            browser.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
            assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, site.name


@pytest.mark.parametrize("kind", ["index", "matrix", "op", "run", "history"])
def test_what_is_printed_has_the_evidence_and_no_controls(
    browser: Browser, real: Path, tmp_path: Path, kind: str
) -> None:
    visit(browser, address_of(page_of(real, kind)))
    with media(browser, "print"), screen(browser, 700, 1000):
        assert browser.find_element("css selector", ".banner").is_displayed()
        for control in browser.find_elements("css selector", "#filters, #theme, #search, .top nav, .copy"):
            assert not control.is_displayed()
    assert print_pages(browser, tmp_path) >= 1


@pytest.mark.parametrize("kind", ["index", "matrix", "op", "run", "runs"])
def test_without_javascript_a_page_can_be_read(browser: Browser, real: Path, kind: str) -> None:
    with without_javascript(browser):
        visit(browser, address_of(page_of(real, kind)))
        assert browser.find_element("css selector", "h1").is_displayed()
        assert not browser.find_element("id", "search").is_displayed()
        for form in browser.find_elements("id", "filters"):
            assert not form.is_displayed()
        assert len(browser.find_elements("css selector", "main a")) > 2
        if kind == "matrix":
            assert len(browser.find_elements("css selector", "#matrix tbody td.c a")) > 30


def test_levels_of_evidence_differ_without_colour(browser: Browser, real: Path) -> None:
    visit(browser, address_of(real / "matrix.html"))
    script = """const one = document.querySelector(arguments[0]);
        if (!one) return null;
        const s = getComputedStyle(one);
        return [s.borderTopStyle, s.backgroundImage.replace(/(rgba?|color)\\([^)]*\\)/g, ''),
                s.backgroundColor.endsWith(', 0)') || s.backgroundColor.endsWith('/ 0)')].join(' ')"""
    looks = {
        level: browser.execute_script(script, f"td.e-{level} a") for level in ("measured", "stand-in", "simulated")
    }
    assert None not in looks.values()
    assert len(set(looks.values())) == 3


# --- the matrix ---------------------------------------------------------------------------------------------------


def test_the_matrix_filters_by_status_and_its_address_brings_the_view_back(browser: Browser, real: Path) -> None:
    visit(browser, address_of(real / "matrix.html"))
    before = rows(browser)
    browser.execute_script("document.querySelector('[name=status][value=unsupported]').click()")
    until(lambda: 0 < len(rows(browser)) < len(before))
    found = rows(browser)
    assert found == [name for name in before if name in found]
    assert browser.current_url.endswith("#status=unsupported")
    assert browser.execute_script(
        "return [...document.querySelectorAll('#matrix tbody tr')].every((r) => r.querySelector('.s-unsupported'))"
    )
    address, text = browser.current_url, shown(browser)
    visit(browser, address)
    until(lambda: shown(browser) == text)
    assert rows(browser) == found
    press(browser, "#clear")
    until(lambda: len(rows(browser)) == len(before))
    assert rows(browser) == before
    assert "#" not in browser.current_url


def test_what_the_script_draws_is_what_the_page_held(browser: Browser, real: Path) -> None:
    def cells() -> list[list[str]]:
        script = """const told = (a) => a ? `${a.title} ${a.getAttribute('href')}` : '';
            return [...document.querySelectorAll('#matrix tbody tr')].map((row) => [...row.cells].map((c) =>
                `${[...c.classList].sort()} ${c.textContent} ${told(c.querySelector('a'))}`))"""
        return list(browser.execute_script(script))

    visit(browser, address_of(real / "matrix.html"))
    before = cells()
    heads = browser.execute_script("return document.querySelector('#matrix thead').innerText")
    visit(browser, address_of(real / "matrix.html") + "#q=a")
    until(lambda: "of" in shown(browser) or "stacks" in shown(browser))
    press(browser, "#clear")
    until(lambda: len(cells()) == len(before))
    assert cells() == before
    assert browser.execute_script("return document.querySelector('#matrix thead').innerText") == heads


def test_older_versions_and_a_dtype_are_shown_when_asked_for(browser: Browser, real: Path) -> None:
    visit(browser, address_of(real / "matrix.html"))
    n_columns = "return document.querySelectorAll('#matrix thead .version').length"
    assert browser.execute_script(n_columns) == 4
    visit(browser, address_of(real / "matrix.html") + "#versions=all")
    until(lambda: browser.execute_script(n_columns) == 5)
    visit(browser, address_of(real / "matrix.html") + "#rocm=ROCm+7.1.0")
    until(lambda: browser.execute_script(n_columns) == 1)
    assert "torch 2.12.1+rocm7.1" in browser.find_element("css selector", "#matrix thead").text
    visit(browser, address_of(real / "matrix.html") + "#dtype=int64")
    until(lambda: " of " in shown(browser))
    assert 0 < len(rows(browser)) < 15
    visit(browser, address_of(real / "matrix.html") + "#q=no+such+op")
    until(lambda: rows(browser) == [])
    assert browser.find_element("id", "nothing").is_displayed()


def test_a_kind_of_work_leads_from_the_first_page_to_its_ops_and_rows_can_be_split_by_dtype(
    browser: Browser, real: Path
) -> None:
    visit(browser, address_of(real / "index.html"))
    press(browser, ".kinds tbody tr:nth-child(2) th a")
    until(lambda: "matrix.html#kind=" in browser.current_url and " of " in shown(browser))
    ops = rows(browser)
    assert 0 < len(ops) < 30
    assert browser.find_element("name", "kind").get_attribute("value") == "gemm"
    visit(browser, f"{browser.current_url}&rows=dtype&versions=all")
    until(lambda: "row" in shown(browser))
    split = rows(browser)
    dtypes = [one.text for one in browser.find_elements("css selector", "#matrix tbody th .dtype")]
    assert {row.removesuffix(dtype) for row, dtype in zip(split, dtypes, strict=True)} >= set(ops)
    assert len(set(split)) == len(split)
    cell = browser.find_element("css selector", "#matrix tbody td.c a")
    assert f"&dtype={dtypes[0]}" in cell.get_attribute("href")


def test_arrows_go_from_cell_to_cell_and_the_tab_key_stops_once(browser: Browser, real: Path) -> None:
    visit(browser, address_of(real / "matrix.html"))
    script = "return document.querySelectorAll('#matrix tbody a:not([tabindex=\"-1\"])').length"
    assert browser.execute_script(script) == 1
    place = "const c = document.activeElement.closest('td, th'); return [c.parentElement.rowIndex - 2, c.cellIndex]"
    browser.execute_script("document.querySelector('#matrix tbody a').focus()")
    active = browser.switch_to.active_element
    assert browser.execute_script(place) == [0, 0]
    active.send_keys("\ue015")  # arrow down
    assert browser.execute_script(place) == [1, 0]
    browser.switch_to.active_element.send_keys("\ue014")  # arrow right
    row, column = browser.execute_script(place)
    assert (row, column > 0) == (1, True)
    browser.switch_to.active_element.send_keys("\ue011")  # home
    assert browser.execute_script(place) == [1, 0]
    assert browser.execute_script(script) == 1


@pytest.mark.parametrize("kind", ["index", "gpu"])
def test_every_table_of_statuses_is_one_stop_of_the_tab_key(browser: Browser, real: Path, kind: str) -> None:
    visit(browser, address_of(page_of(real, kind)))
    links = browser.find_elements("css selector", ".grid tbody a")
    stops = browser.find_elements("css selector", ".grid tbody a:not([tabindex='-1'])")
    assert (len(links) > 1, len(stops)) == (True, 1)
    browser.execute_script("arguments[0].focus()", stops[0])
    browser.switch_to.active_element.send_keys("\ue010")  # end
    assert (
        browser.switch_to.active_element
        == links[browser.execute_script("return document.querySelectorAll('.grid tbody tr:first-child a').length - 1")]
    )


def test_the_matrix_turns_over_its_pages(browser: Browser, long: Path) -> None:
    visit(browser, address_of(long / "matrix.html"))
    first = rows(browser)
    assert len(first) == 100
    press(browser, ".pager a:nth-child(3)")
    until(lambda: len(rows(browser)) == 60)
    assert set(rows(browser)).isdisjoint(first)
    assert browser.current_url.endswith("#page=3")
    assert shown(browser).endswith("201 to 260 shown")


# --- lists --------------------------------------------------------------------------------------------------------


def test_a_list_is_searched_to_its_end_and_sorted_over_all_of_it(browser: Browser, long: Path) -> None:
    visit(browser, address_of(long / "runs/run-00000-5f0c6d1a.html"))
    selector = "#rows > tr"
    assert len(rows(browser, selector)) == 200
    assert shown(browser) == "1,300 cases, 1 to 200 shown"
    type_into(browser, "q", "[1427, 4096]")  # the last that was made
    until(lambda: len(rows(browser, selector)) == 1)
    assert shown(browser) == "1 of 1,300 cases"
    press(browser, "#clear")
    until(lambda: len(rows(browser, selector)) == 200)
    press(browser, '[data-sort="5"]')
    until(lambda: "sort=-5" in browser.current_url)
    script = "return [...document.querySelectorAll('#rows > tr')].map((r) => Number(r.children[5].dataset.v))"
    until(lambda: browser.execute_script(script)[0] == 339 * 24)
    times = browser.execute_script(script)
    assert times == sorted(times, reverse=True)
    press(browser, '[data-turn="1"]')
    until(lambda: "page=2" in browser.current_url)
    assert browser.execute_script(script)[0] <= times[-1]
    address = browser.current_url
    visit(browser, address)
    until(lambda: "201 to 400 shown" in shown(browser))


def test_a_case_is_found_by_its_address_also_where_the_page_does_not_hold_it(browser: Browser, long: Path) -> None:
    page = address_of(long / "runs/run-00000-5f0c6d1a.html")
    visit(browser, page)
    assert not browser.find_elements("id", "case-case-259-1299-0123456789ab")
    visit(browser, f"{page}#case-case-259-1299-0123456789ab")
    until(lambda: browser.find_elements("id", "case-case-259-1299-0123456789ab") != [])
    row = browser.find_element("id", "case-case-259-1299-0123456789ab")
    until(lambda: "here" in row.get_attribute("class"))
    assert row.is_displayed()


def test_status_and_stack_are_asked_of_the_same_observation(browser: Browser, long: Path) -> None:
    stack = LONG.stacks()[0].slug
    rows_of_op = list(LONG.signatures(op_slug("aten::mm.default")))
    expected = [
        row.key
        for row in rows_of_op
        if any(seen.stack_slug == stack and seen.status == "slow" for seen in row.observations)
    ]
    seen_anywhere = [row for row in rows_of_op if any(seen.status == "slow" for seen in row.observations)]
    assert 0 < len(expected) < len(seen_anywhere)
    visit(browser, address_of(long / f"ops/{op_slug('aten::mm.default')}.html") + f"#status=slow&stack={stack}")
    until(lambda: shown(browser) == f"{len(expected)} of 260 signatures")
    script = "return [...document.querySelectorAll('#rows > details')].map((d) => d.id)"
    assert sorted(browser.execute_script(script)) == sorted(f"case-{key}" for key in expected)


def test_a_signature_opens_by_its_address_and_shows_what_was_seen(browser: Browser, real: Path) -> None:
    key = healthy_keys(2)[1]
    page = next(path for path in (real / "ops").glob("*.html") if f'id="case-{key}"' in path.read_text())
    visit(browser, f"{address_of(page)}#case-{key}")
    case = browser.find_element("id", f"case-{key}")
    until(lambda: case.get_attribute("open") is not None)
    assert "AMD Instinct MI300X" in case.text
    assert "HIP error: invalid device function" in case.text
    assert "NVIDIA H200" in case.text
    assert "stand-in" in case.text


# --- search, theme, snippets --------------------------------------------------------------------------------------


def test_a_slash_leads_to_the_search_and_enter_to_what_was_found(browser: Browser, real: Path) -> None:
    visit(browser, address_of(real / "runs.html"))
    browser.find_element("css selector", "body").send_keys("/")
    box = browser.switch_to.active_element
    assert box.get_attribute("id") == "search"
    box.send_keys("mul")
    until(lambda: box.get_attribute("aria-expanded") == "true")
    options = browser.find_elements("css selector", "#results [role=option]")
    assert options[0].text.splitlines()[:2] == ["op", "aten::mul.Scalar"]
    assert box.get_attribute("aria-activedescendant") == "result-0"
    box.send_keys("\ue015")
    assert box.get_attribute("aria-activedescendant") == "result-1"
    box.send_keys("\ue013")
    box.send_keys("\ue00c")  # escape
    assert not browser.find_element("id", "results").is_displayed()
    box.send_keys("\ue015")
    until(lambda: box.get_attribute("aria-expanded") == "true")
    box.send_keys("\n")
    until(lambda: "/ops/mul-scalar-" in browser.current_url)
    assert browser.find_element("css selector", "h1").text == "aten::mul.Scalar"


def test_devices_models_and_runs_are_found_too(browser: Browser, real: Path) -> None:
    visit(browser, address_of(real / "index.html"))
    box = browser.find_element("id", "search")
    box.send_keys("mi300x")
    until(lambda: browser.find_elements("css selector", "#results li") != [])
    kinds = [one.text for one in browser.find_elements("css selector", "#results .kind")]
    assert kinds == ["GPU", "run", "run"]
    box.clear()
    box.send_keys("llama")
    until(lambda: "model" in [one.text for one in browser.find_elements("css selector", "#results .kind")])
    box.clear()
    box.send_keys("no such thing")
    until(lambda: browser.find_element("css selector", ".results [role=status]").text == "Nothing by that name.")


def test_the_theme_is_kept_from_page_to_page(browser: Browser, served: str) -> None:
    def background() -> str:
        return str(browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    visit(browser, f"{served}/index.html")
    light = background()
    press(browser, "#theme")
    assert (light, background()) == ("rgb(251, 251, 249)", "rgb(17, 20, 24)")

    def is_kept() -> bool:
        # Chromium stores by another process: a script that leaves at once is faster than a hand, and chooses again.
        time.sleep(0.3)
        browser.get(f"{served}/matrix.html")
        if background() == light:
            press(browser, "#theme")
            return False
        return True

    until(is_kept)
    browser.execute_script("localStorage.clear()")


def test_a_badge_is_copied_with_the_address_of_the_site_where_that_is_known(
    browser: Browser, real: Path, served: str
) -> None:
    page = page_of(real, "model").relative_to(real).as_posix()
    visit(browser, f"{served}/{page}")
    snippet = browser.find_element("css selector", ".badge-row pre").get_attribute("textContent")
    assert snippet.startswith(f"[![rocm-audit]({served}/badges/model-")
    assert snippet.endswith(f"({served}/{page})")
    press(browser, ".badge-row .copy")
    until(lambda: browser.find_element("css selector", ".badge-row .copy").text in ("Copied", "Selected: press Ctrl+C"))
    visit(browser, address_of(real / page))
    snippet = browser.find_element("css selector", ".badge-row pre").get_attribute("textContent")
    assert snippet.startswith("[![rocm-audit](SITE/badges/model-")
    natural = browser.execute_script("return [...document.images].map((image) => image.naturalWidth > 0)")
    assert natural
    assert all(natural)


@pytest.mark.parametrize("page", ["matrix.html", "runs.html", "runs/run"])
@pytest.mark.parametrize("fragment", ["%", "q=%", "status=nonsense&page=-3&sort=99&dtype=%00", "case-<b>", "="])
def test_an_address_that_was_typed_badly_shows_the_page(browser: Browser, real: Path, page: str, fragment: str) -> None:
    drain(browser)
    path = page_of(real, "run") if page == "runs/run" else real / page
    visit(browser, f"{address_of(path)}#{fragment}")
    until(lambda: "Loading" not in shown(browser) and shown(browser) != "")
    browser.find_element("id", "search").send_keys("mm")
    until(lambda: browser.find_elements("css selector", "#results li") != [])
    assert drain(browser)[0] == []


# --- strangers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_texts_of_strangers_are_shown_and_never_run(browser: Browser, hostile: Path, kind: str) -> None:
    drain(browser)
    for page in sorted((hostile / "ops").glob("*.html"))[:4] if kind == "op" else [page_of(hostile, kind)]:
        visit(browser, address_of(page))
        title = browser.title
        box = browser.find_element("id", "search")
        box.send_keys("script")
        until(lambda: browser.find_elements("css selector", "#results li") != [])
        counted = browser.execute_script(
            "return [document.querySelectorAll('[onmouseover], [onerror], img[src=\"x\"]').length,"
            " [...document.scripts].filter((s) => !s.src).length,"
            " [...document.querySelectorAll('a')].filter((a) => !['file:', 'https:'].includes(a.protocol)).length]"
        )
        assert counted == [0, 0, 0]
        assert browser.title == title != "taken"
    assert drain(browser)[0] == []
