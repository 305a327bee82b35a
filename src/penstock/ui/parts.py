"""What several pages are made of: tables, tiles, states. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from penstock.status import Level
from penstock.status.model import Process
from penstock.ui.html import Child, Html, h

_LEVELS = {"ok": "OK", "stopped": "Stopped", "warning": "Warning", "error": "Error"}
State = Literal["ok", "stopped", "warning", "error", "busy"]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    content: Child
    kind: str = ""
    """Classes of the stylesheet."""


def cell(content: Child, kind: str = "") -> Cell:
    """Return a cell of text."""
    return Cell(content, kind)


def number(content: Child, tone: str = "") -> Cell:
    """Return a cell of a number: set to the right, in digits of one width."""
    return Cell(content, f"num {tone}".strip())


def table(
    label: str,
    titles: Sequence[str],
    rows: Iterable[tuple[str, Sequence[Cell]]],
    *,
    none: str = "Nothing yet.",
) -> Html:
    """Return a table; each row has a key that stays the same while the page lives.

    A title is that of numbers when the cells below are.
    """
    made = list(rows)
    if not made:
        return empty(none)
    kinds = [each.kind for each in made[0][1]]
    head = [
        h("th", title, scope="col", class_="num" if kind.startswith("num") else None)
        for title, kind in zip(titles, kinds, strict=True)
    ]
    body = [
        h("tr", [h("td", c.content, class_=c.kind or None) for c in cells], data_key=key)
        for key, cells in made
    ]
    inner = h("table", h("thead", h("tr", head)), h("tbody", body), aria_label=label)
    return h("div", inner, class_="scroll", tabindex=0, role="region", aria_label=label)


def section(title: str, *children: Child, note: Child = None, id_: str | None = None) -> Html:
    """Return a part of a page with a heading."""
    heading = h("h2", title, h("small", note) if note else None)
    return h("section", heading, *children, id=id_)


def tiles(*pairs: tuple[str, Child, str]) -> Html:
    """Return key figures: label, value, tone."""
    return h(
        "dl",
        [
            h("div", h("dt", label), h("dd", value, class_=tone or None), class_="tile")
            for label, value, tone in pairs
        ],
        class_="tiles",
    )


def facts(*pairs: tuple[str, Child]) -> Html:
    """Return names and values below one another."""
    return h("dl", [[h("dt", name), h("dd", value)] for name, value in pairs], class_="facts")


def state(kind: State, text: str) -> Html:
    """Return a state: a coloured mark, and the word that says the same."""
    return h("span", h("i", class_=f"dot {kind}", aria_hidden="true"), text, class_=f"state {kind}")


def level_badge(level: Level) -> Html:
    """Return a location's one colour."""
    return state(level, _LEVELS[level])


def code(text: str) -> Html:
    """Return text that is a name, a path or a command."""
    return h("code", text)


def empty(text: Child) -> Html:
    """Return what stands in place of an empty table."""
    return h("p", text, class_="empty")


def process_text(process: Process | None) -> str:
    """Return a process as ``4711 on host``, with what is known of its life."""
    if process is None:
        return "not known"
    ended = {True: "", False: " (ended)", None: ""}[process.alive]
    return f"{process.pid} on {process.host}{ended}"
