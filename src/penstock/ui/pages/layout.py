"""What surrounds every page: the head, the bar, a location's tabs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.status import Health, LocationStatus, Reason, health
from penstock.ui.html import Child, Html, h, join
from penstock.ui.parts import level_badge
from penstock.ui.words import day_and_clock

_KINDS = {
    "program": "DStream program",
    "query": "Structured Streaming query",
    "batched": "batches of Kafka topics",
    "journal": "journal",
}


@dataclass(frozen=True, slots=True)
class Tab:
    """A page of a location."""

    path: str
    title: str
    kinds: tuple[str, ...]
    """The kinds of locations that have it."""


TABS = (
    Tab("batches", "Batches", ("program", "query")),
    Tab("rates", "Back pressure", ("program", "query")),
    Tab("receivers", "Receivers", ("program", "journal")),
    Tab("journal", "Journal", ("program", "journal")),
    Tab("checkpoint", "Checkpoint", ("program", "query", "batched")),
)


def document(title: str, main: Html, *, signed_in: bool = False) -> str:
    """Return a whole HTML document."""
    head = h(
        "head",
        h("meta", charset="utf-8"),
        h("meta", name="viewport", content="width=device-width, initial-scale=1"),
        h("meta", name="color-scheme", content="light dark"),
        h("title", f"{title} · penstock"),
        h("link", rel="icon", href="/static/icon.svg", type="image/svg+xml"),
        h("link", rel="stylesheet", href="/static/style.css"),
        h("script", src="/static/page.js", defer=True),
    )
    bar = h(
        "header",
        h("a", h("span", class_="mark", aria_hidden="true"), "penstock", href="/", class_="brand"),
        h("div", id="connection", role="status"),
        h(
            "div",
            h("button", "Pause", id="pause", type="button", title="Stop updating (p)"),
            h("button", "Theme", id="theme", type="button", title="Light, dark, as the system (t)"),
            h("form", h("button", "Sign out"), method="post", action="/signout")
            if signed_in
            else None,
            class_="tools",
        ),
        class_="bar",
    )
    skip = h("a", "Skip to content", href="#main", class_="skip")
    body = h("body", skip, bar, h("main", main, id="main", tabindex=-1))
    return f"<!doctype html>{h('html', head, body, lang='en')}"


def content(*parts: Child, read_ms: int | None = None) -> Html:
    """Return the content of a page, with when its facts were read."""
    note = f"Read at {day_and_clock(read_ms)} UTC. Times are UTC." if read_ms else "Times are UTC."
    return join([*parts, h("footer", note)])


def location_head(index: int, status: LocationStatus, active: str, extra: Child = None) -> Html:
    """Return a location's name, state, reasons and tabs."""
    found = health(status)
    tabs: Sequence[Tab] = [tab for tab in TABS if status.kind in tab.kinds]
    return join(
        [
            h(
                "div",
                h("nav", h("a", "Overview", href="/"), aria_label="Path", class_="path"),
                h("h1", status.name),
                level_badge(found.level),
                h("span", f"{_KINDS[status.kind]} · {status.location}", class_="where"),
                class_="title",
            ),
            h(
                "nav",
                [
                    h(
                        "a",
                        tab.title,
                        href=f"/{index}/{tab.path}",
                        aria_current="page" if tab.path == active else None,
                    )
                    for tab in tabs
                ],
                class_="tabs",
                aria_label="Pages of this location",
            ),
            _reasons(index, found, active),
            extra,
        ]
    )


def reason_link(index: int, reason: Reason) -> Html:
    """Return a reason that leads to what shows more of it."""
    sign = "/" if reason.page == "batches" else "#"
    place = f"{sign}{reason.place}" if reason.place else ""
    return h("a", reason.text, href=f"/{index}/{reason.page}{place}")


def _reasons(index: int, found: Health, active: str) -> Html | None:
    if not found.reasons:
        return None
    rows = [
        h(
            "li",
            h("i", class_=f"dot {reason.level}", aria_hidden="true"),
            h("span", reason.text)
            if reason.page == active and not reason.place
            else reason_link(index, reason),
            class_=reason.level,
        )
        for reason in found.reasons[:8]
    ]
    return h("ul", rows, class_="reasons", aria_label="What needs attention here")
