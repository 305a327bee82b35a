"""Draws docs/pictures anew: python -m tests.ui.pictures [FOLDER]."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from penstock.ui import DashboardSettings, start_dashboard
from tests.ui.conftest import ARGUMENTS, CHROMIUM
from tests.ui.world import world

PICTURES = (
    ("dashboard-overview", "", "light"),
    ("dashboard-program", "1", "light"),
    ("dashboard-journal", "3", "dark"),
)
MORE = (
    ("overview-dark", "", "dark"),
    ("program-dark", "1", "dark"),
    ("batch", "1?batch=61", "light"),
    ("stopped", "2", "light"),
    ("ok", "0", "light"),
    ("own-journal", "0/journal", "light"),
    ("missing", "9", "light"),
)


_PLACE = """(scratch) => {
  document.querySelectorAll(".where, code").forEach((each) => {
    each.textContent = each.textContent.replace(scratch, "/srv/streams");
  });
}"""
"""Where the world is, for the time of a picture."""


def draw(folder: Path, pictures: tuple[tuple[str, str, str], ...], *, whole: bool) -> None:
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        paths = world(Path(scratch), "'region'")
        served = start_dashboard([str(path) for path in paths], DashboardSettings(port=0))
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        for name, path, scheme in pictures:
            page = browser.new_page(viewport={"width": 1360, "height": 860}, color_scheme=scheme)  # type: ignore[arg-type]
            page.goto(f"{served.url}{path}")
            page.evaluate(_PLACE, scratch)
            page.screenshot(path=folder / f"{name}.png", full_page=whole)
            page.close()
        browser.close()
        served.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        draw(Path(sys.argv[1]), (*PICTURES, *MORE), whole=True)
    else:
        draw(Path(__file__).parents[2] / "docs" / "pictures", PICTURES, whole=False)
