"""Headless Chromium for tests of pages: a fixture, hands that press and type, eyes for axe-core, console and requests.

``tests/conftest.py`` hands the fixture to every test; a module of browser tests says ``pytestmark = BROWSER_MARKS``.
"""

from __future__ import annotations

import base64
import functools
import importlib.util
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
DRIVER = shutil.which("chromedriver")

BROWSER_MARKS = [
    pytest.mark.browser,
    pytest.mark.skipif(
        BROWSER is None or DRIVER is None, reason="needs chromium and chromedriver (Debian: chromium-driver)"
    ),
]

Browser = Any  # selenium's WebDriver, which is not imported where there is none

_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--window-size=1300,1000",
    "--disable-background-networking",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A Chromium of 1300 x 1000 that keeps its console and its requests for ``drain``."""
    with open_browser() as driver:
        yield driver


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The same without pytest, for benchmarks."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in _FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    driver.set_page_load_timeout(60)
    driver.set_script_timeout(180)  # axe-core on a page of hundreds of cases, on a busy machine
    try:
        yield driver
    finally:
        driver.quit()


def address_of(path: Path) -> str:
    """The ``file:`` address of a page."""
    return f"file://{quote(str(path))}"


def save(content: str, path: Path) -> str:
    """Writes a page; its address."""
    path.write_text(content, encoding="utf-8")
    return address_of(path)


def visit(browser: Browser, address: str) -> None:
    """Loads a page, also where only the fragment differs from the page that is shown."""
    browser.get("about:blank")
    browser.get(address)


def press(browser: Browser, selector: str) -> None:
    """Clicks on an element, as a hand would: it is scrolled to first."""
    browser.execute_script("document.querySelector(arguments[0]).scrollIntoView({block: 'center'})", selector)
    browser.find_element("css selector", selector).click()


def type_into(browser: Browser, name: str, text: str) -> None:
    """Types into the field of this name."""
    browser.find_element("name", name).send_keys(text)


def until(condition: Callable[[], bool]) -> None:
    """Waits for the page's script, which filters a moment after the last key."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, "the page did not get there"
        time.sleep(0.05)


@contextmanager
def screen(browser: Browser, width: int, height: int = 800, mobile: bool = False) -> Iterator[None]:
    """The page on a screen of this size, in CSS pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def without_javascript(browser: Browser) -> Iterator[None]:
    """Pages that are loaded meanwhile run no script of their own."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@contextmanager
def media(browser: Browser, kind: str = "", **features: str) -> Iterator[None]:
    """The page as another medium or reader sees it: ``"print"``, or ``prefers_color_scheme="dark"``."""
    named = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": kind, "features": named})
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def print_pages(browser: Browser, folder: Path) -> int:
    """Prints to ``report.pdf`` in ``folder`` and counts its pages."""
    pdf = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    (folder / "report.pdf").write_bytes(pdf)
    return pdf.count(b"/Type /Page\n") or pdf.count(b"/Type /Page ")


def drain(browser: Browser) -> tuple[list[str], list[str]]:
    """What was written to the console, and every address that was asked for, since the last look."""
    logged = [entry["message"] for entry in browser.get_log("browser")]
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return logged, [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]


def barriers(browser: Browser) -> list[str]:
    """What axe-core finds against WCAG 2.1 A and AA and its own best practices, one line an element; empty: nothing.

    Only what is displayed is looked at: open what is folded first.
    """
    browser.execute_script(_axe())
    found = browser.execute_async_script(_RUN_AXE)
    assert isinstance(found, list), found
    return found


_RUN_AXE = """
const done = arguments[arguments.length - 1];
const why = (node) => node.failureSummary.split("\\n").slice(1).map((line) => line.trim()).join("; ");
const told = (rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(" ")}: ${why(node)}`);
axe.run(document, { resultTypes: ["violations"] })
  .then(({ violations }) => done(violations.flatMap(told)), (error) => done(String(error)));
"""


@functools.cache
def _axe() -> str:
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("axe-core-python brings axe-core: pip install '.[test]'")
    return Path(spec.origin).with_name("axe.min.js").read_text(encoding="utf-8")
