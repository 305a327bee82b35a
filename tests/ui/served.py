"""Finds and asks a dashboard that a program serves."""

from __future__ import annotations

import re
from typing import Any

import httpx

from tests.waiting import WAIT_S

SETTINGS = {"spark.penstock.ui.enabled": "true", "spark.penstock.ui.port": "0"}


def url_in(log: str) -> str:
    """Return the newest dashboard's URL in a log."""
    return re.findall(r"The dashboard is at (http://\S+)", log)[-1]


def locations(url: str) -> list[dict[str, Any]]:
    """Return what it says of its locations."""
    found: list[dict[str, Any]] = httpx.get(f"{url}api/status", timeout=WAIT_S).json()["locations"]
    return found
