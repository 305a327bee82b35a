"""One world, one dashboard and one browser for all tests of a run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock.ui import Dashboard, DashboardSettings, start_dashboard
from tests.ui.world import Batches, program, world
from tests.waiting import WAIT_S

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def locations(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The anchors' world, then a program of ten batches and one of ten thousand."""
    folder = tmp_path_factory.mktemp("world")
    few, many = folder / "ten", folder / "ten-thousand"
    program(few, Batches(10))
    program(many, Batches(10_000, interval_ms=200), has_rates=False)
    return [*world(folder), few, many]


@pytest.fixture(scope="session")
def dashboard(locations: list[Path]) -> Iterator[Dashboard]:
    served = start_dashboard([str(path) for path in locations], DashboardSettings(port=0))
    yield served
    served.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not os.access(CHROMIUM, os.X_OK):
        pytest.skip(f"NO BROWSER: there is no {CHROMIUM} (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of its own. Its test fails for an error of a script or a request, and for a dialog.

    What else is on the console are a browser's own remarks, and depend on its version.
    """
    context = browser.new_context(viewport={"width": 1360, "height": 900})
    context.set_default_timeout(1000 * WAIT_S)
    page = context.new_page()
    told: list[str] = []
    page.on("console", lambda said: told.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("dialog", lambda dialog: told.append(f"a dialog: {dialog.message}"))
    yield page
    context.close()
    assert not told, told
