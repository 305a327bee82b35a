"""Receivers: which run, where, what they take, and what went wrong."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.status.model import LocationStatus, ReceiverStatus
from penstock.ui import words
from penstock.ui.html import Html, h
from penstock.ui.pages.layout import content, location_head
from penstock.ui.parts import Cell, State, cell, code, number, process_text, section, state, table

_STATES: dict[str, tuple[State, str]] = {
    "started": ("ok", "up"),
    "restarting": ("error", "restarting"),
    "stopped": ("stopped", "stopped"),
    "dead": ("error", "dead"),
}
_TITLES = (
    "Receiver",
    "Stream",
    "State",
    "Since",
    "Process",
    "Listens at",
    "Acked records/s",
    "Records per block",
    "Last block",
    "Publish latency",
    "Errors",
    "Refused",
    "Writer",
)


def receivers_page(index: int, status: LocationStatus) -> Html:
    """Return the page about the receivers of all streams of a location."""
    found = [each for stream in status.streams for each in stream.receivers]
    found.sort(key=lambda each: (each.state == "stopped", each.stream, each.name))
    rows = [(f"{each.stream} {each.name}", _row(each, status.read_ms)) for each in found]
    none = "No receiver ever wrote into a journal here."
    return content(
        location_head(index, status, "receivers"),
        section("Receivers", table("Receivers", _TITLES, rows, none=none)),
        _errors(found),
        read_ms=status.read_ms,
    )


def _row(found: ReceiverStatus, now_ms: int) -> Sequence[Cell]:
    kind, word = _STATES[found.state]
    return (
        cell(found.name, "name"),
        cell(found.stream),
        cell(state(kind, word)),
        cell(words.age(found.changed_ms, now_ms), "time"),
        cell(process_text(found.process), "time"),
        cell(code(found.listening_at) if found.listening_at else words.UNKNOWN),
        number(words.rate(found.rate)),
        number(words.count(found.block_records)),
        number(words.age(found.newest_ms, now_ms)),
        number(words.UNKNOWN if found.publish_ms is None else f"{found.publish_ms:.3g} ms"),
        number(words.count(found.errors), "warning" if found.errors else ""),
        number(words.count(found.refused), "warning" if found.refused else ""),
        cell(code(found.writer)),
    )


def _errors(found: Sequence[ReceiverStatus]) -> Html | None:
    rows = [
        (
            f"{each.stream} {each.name}",
            (cell(each.name, "name"), cell(each.stream), cell(each.last_error, "error-text")),
        )
        for each in found
        if each.last_error is not None
    ]
    if not rows:
        return None
    inner = table("Last errors", ("Receiver", "Stream", "Last error in this run"), rows)
    return section(
        "Last errors", inner, h("p", "Each is logged where it happened.", class_="empty")
    )
