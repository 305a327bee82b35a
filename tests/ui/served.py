"""Finds and asks a dashboard that a program serves, and makes pages without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import httpx

from penstock.status import LocationStatus, Unreadable
from penstock.ui import pages
from tests.waiting import WAIT_S

SETTINGS = {"spark.penstock.ui.enabled": "true", "spark.penstock.ui.port": "0"}


def url_in(log: str) -> str:
    """Return the newest dashboard's URL in a log."""
    return re.findall(r"The dashboard is at (http://\S+)", log)[-1]


def locations(url: str) -> list[dict[str, Any]]:
    """Return what it says of its locations."""
    found: list[dict[str, Any]] = httpx.get(f"{url}api/status", timeout=WAIT_S).json()["locations"]
    return found


def overview(*found: LocationStatus | Unreadable) -> str:
    """Return the overview of some locations."""
    return _main("overview", pages.overview(found))


def program_page(status: LocationStatus, batch_id: int | None = None) -> str:
    """Return the page of a program or query, without the right to change rates."""
    values = pages.program(0, status, 50, batch_id, may_change=False)
    assert values is not None
    return _main("program", values)


def journal_page(status: LocationStatus) -> str:
    """Return the page of a location's journal."""
    return _main("journal", pages.journal(0, status))


def _main(name: str, values: Mapping[str, Any]) -> str:
    return pages.render(name, "", values, part=True, signed_in=False)
