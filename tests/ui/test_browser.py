"""The pages in a real browser: what people see, use and cannot be harmed by."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.rate import RateOverride, RateOverrides
from penstock.storage import open_storage
from penstock.ui import Dashboard, DashboardSettings, start_dashboard
from tests.ui.world import EVIL, Batches, program

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytest.importorskip("playwright", reason="NO BROWSER TESTS: playwright is not installed")
pytestmark = pytest.mark.slow

PAGES = (
    "",
    "0",
    "0?batch=200",
    "1",
    "1?batch=61",
    "0/journal",
    "3/journal",
    "2",
    "4",
    "5?last=1000",
)
LOGS = ("offsets", "commits")


def text_of(page: Page) -> str:
    return page.inner_text("main")


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_readable_by_all(page: Page, dashboard: Dashboard, path: str) -> None:
    """Names, contrast, roles, and what a keyboard reaches, by axe's rules; contrast in the dark."""
    from axe_playwright_python.sync_playwright import Axe

    page.goto(f"{dashboard.url}{path}")
    # Fifty rows are no different from three, but for the time they take.
    page.evaluate("document.querySelectorAll('tr:nth-child(n+4)').forEach((row) => row.remove())")
    found = Axe().run(page).response["violations"]
    page.emulate_media(color_scheme="dark")
    found += Axe().run(page, options={"runOnly": ["color-contrast"]}).response["violations"]
    broken = [
        (each["id"], each["help"], [node["target"] for node in each["nodes"]][:3]) for each in found
    ]
    assert not broken


def test_a_stranger_sees_what_is_wrong(page: Page, dashboard: Dashboard) -> None:
    """The slow stream, the dead consumer and the loss are named on the first page."""
    page.goto(dashboard.url)
    attention = page.inner_text(".reasons")
    assert "it is behind: batch 178 began 24.2 s late" in attention
    assert "batches take 2." in attention
    assert "consumer fraud-scoring of web-clicks seems dead" in attention
    assert "84,000 records behind" in attention
    assert "90 records of sensors were lost" in attention
    assert "3 records of sensors were refused" in attention


def test_each_reason_leads_to_its_page(page: Page, dashboard: Dashboard) -> None:
    page.goto(dashboard.url)
    page.get_by_role("link", name="consumer fraud-scoring").click()
    row = page.get_by_role("row").filter(has_text="fraud-scoring")
    assert "dead" in row.inner_text()
    assert "84,000" in row.inner_text()
    page.wait_for_url("**/3/journal#web-clicks")
    losses = page.get_by_role("table", name="Losses of sensors").inner_text()
    assert "180 to 269" in losses
    assert "damaged by the disk" in losses
    page.goto(dashboard.url)
    page.get_by_role("link", name="batch 178 began").click()
    page.wait_for_url("**/1?batch=178#batch")
    assert "foreachRDD at job.py:41" in text_of(page)


def test_a_phone_shows_reasons_over_its_whole_width(page: Page, dashboard: Dashboard) -> None:
    page.set_viewport_size({"width": 420, "height": 900})
    page.goto(dashboard.url)
    link = page.get_by_role("link", name="consumer fraud-scoring").bounding_box()
    assert link is not None
    assert link["x"] < 80
    page.goto(f"{dashboard.url}3/journal")
    losses = page.get_by_role("table", name="Losses of sensors").bounding_box()
    assert losses is not None
    assert losses["height"] < 150
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide == 420
    page.goto(f"{dashboard.url}1?batch=61")
    assert page.evaluate("document.documentElement.scrollWidth") == 420


def test_hostile_names_and_records_are_text(page: Page, dashboard: Dashboard) -> None:
    for path in ("1?batch=61", "3/journal", ""):
        page.goto(f"{dashboard.url}{path}")
        assert page.locator("main img, main script").count() == 0
        assert "<img src=x onerror=alert(1)>" in text_of(page)
        assert EVIL[-4] not in text_of(page)


def test_a_batch_in_detail(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}1?batch=61")
    text = text_of(page)
    for wanted in ("failed", "Plan", "for its jobs", "Commit", "foreachRDD at job.py:41"):
        assert wanted in text
    assert page.get_by_role("link", name="Spark's jobs").get_attribute("href") == (
        "http://127.0.0.1:4040/jobs/"
    )
    page.get_by_role("link", name="later").click()
    page.wait_for_url("**/1?batch=62#batch")


def test_charts_show_each_batch_and_the_interval(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}1?last=200")
    charts = page.locator(".charts").first.locator(".chart")
    assert charts.count() == 4
    assert page.locator(".chart").count() == 6  # and the limit and the records of its input
    assert page.locator("line.limit").count() == 3
    assert page.locator(".col.failed").count() > 0
    assert page.locator(".col.rerun").count() > 0
    svg = charts.nth(2).locator("svg")
    box = svg.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    tip = page.locator("#tip")
    tip.wait_for()
    assert "Batch " in tip.inner_text()
    assert "Processing time: " in tip.inner_text()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    page.wait_for_url("**/1?batch=*#batch")


def test_a_keyboard_reaches_everything(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}0")
    page.locator(".charts").first.focus()
    page.keyboard.press("ArrowLeft")
    assert "Batch 239" in page.inner_text("#tip")
    page.keyboard.press("ArrowLeft")
    assert "Batch 238" in page.inner_text("#tip")
    page.keyboard.press("Enter")
    page.wait_for_url("**/0?batch=238#batch")
    page.keyboard.press("p")
    assert page.inner_text("#pause") == "Paused"
    page.keyboard.press("t")
    assert page.locator("html").get_attribute("data-theme") == "light"
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 27)"
    page.reload()
    assert page.locator("html").get_attribute("data-theme") == "dark"


def test_ten_thousand_batches(page: Page, dashboard: Dashboard) -> None:
    """Columns stand for several batches, and the page stays small."""
    page.goto(f"{dashboard.url}5?last=1000")
    assert "9999" in text_of(page)
    assert "the location keeps 9,980 before them" in text_of(page)
    columns = json.loads(str(page.locator(".charts").get_attribute("data-columns")))
    assert len(columns) <= 250
    assert len(page.content()) < 200_000


def test_pages_follow_what_happens(page: Page, tmp_path: Path) -> None:
    """A batch that fails shows without a reload; what a person opened and chose stays."""
    location, later = tmp_path / "p", tmp_path / "later"
    program(location, Batches(20, ended_ms=5000))
    program(later, Batches(25, failed=frozenset({22})))
    served = start_dashboard([str(location)], DashboardSettings(port=0))
    try:
        page.goto(f"{served.url}0")
        link = page.get_by_role("link", name="15", exact=True)
        link.focus()
        assert "Failed\n0" in text_of(page)
        for name in (f"{log}/{batch_id}" for batch_id in range(20, 25) for log in LOGS):
            if (later / name).exists():  # a batch that failed is not committed
                os.link(later / name, location / name)
        page.get_by_role("link", name="24", exact=True).wait_for()
        assert "Failed\n1" in text_of(page)
        focused = page.evaluate("document.activeElement.textContent")
        assert focused == "15"
    finally:
        page.goto("about:blank")
        served.close()


def test_a_page_says_when_it_is_not_connected(page: Page, tmp_path: Path) -> None:
    program(tmp_path / "p", Batches(3))
    served = start_dashboard([str(tmp_path / "p")], DashboardSettings(port=0))
    page.goto(served.url)
    # The browser itself would note a request that failed on the console.
    page.evaluate("() => { window.fetch = () => Promise.reject(new Error('offline')); }")
    page.get_by_text("Not connected").wait_for()
    served.close()


def test_an_open_page_does_not_grow(page: Page, dashboard: Dashboard) -> None:
    page.goto(f"{dashboard.url}1")
    count = "document.getElementsByTagName('*').length"
    before = page.evaluate(count)
    often = "for (let i = 0; i < 20; i++) { etag = ''; await refresh(); }"
    page.evaluate(f"(async () => {{ {often} }})()")
    assert abs(page.evaluate(count) - before) < 30


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[tuple[Dashboard, Path]]:
    location = tmp_path / "p"
    program(location, Batches(8))
    token = tmp_path / "token"
    token.write_text("correct horse\n")
    served = start_dashboard([str(location)], DashboardSettings(port=0, token_file=str(token)))
    yield served, location
    served.close()


def test_a_rate_is_changed_with_the_token(
    page: Page, guarded: tuple[Dashboard, Path], browser: Browser
) -> None:
    served, location = guarded
    overrides = RateOverrides(open_storage(location))
    page.goto(f"{served.url}0")
    page.wait_for_url("**/signin")
    page.get_by_label("Token").fill("correct horse")
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(served.url)
    page.goto(f"{served.url}0")
    page.get_by_label("Highest rate, records/s").fill("1500")
    page.get_by_role("button", name="Set", exact=True).click()
    page.wait_for_load_state()
    assert overrides.get("clicks") == RateOverride(1500.0)
    page.get_by_role("button", name="Pause input").click()
    page.get_by_role("button", name="Resume").wait_for()
    assert overrides.get("clicks").paused
    assert "is paused by an operator" in text_of(page)
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/signin")
