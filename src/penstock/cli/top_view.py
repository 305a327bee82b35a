"""What ``penstock top`` shows: statuses in, a renderable out. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from penstock.cli.output import printable
from penstock.status import Level, LocationStatus, Unreadable, duration, health, size
from penstock.status.model import BatchStatus, StreamStatus
from penstock.status.rates import rate_in, rate_out

__all__ = ["view"]

_STYLES: dict[Level, str] = {
    "ok": "green",
    "stopped": "blue",
    "warning": "yellow",
    "error": "bold red",
}
_MOST_REASONS = 12
_MOST_NAME = 24
_WIDE = 120
"""Columns from which on there is more about each location and stream."""


def view(statuses: Sequence[LocationStatus | Unreadable], width: int) -> RenderableType:
    """Return the overview of some locations for a terminal of that width."""
    read = [each for each in statuses if isinstance(each, LocationStatus)]
    parts: list[RenderableType] = [_locations(statuses, width >= _WIDE)]
    reasons = _reasons(statuses)
    parts += [Text(), *reasons[:_MOST_REASONS]] if reasons else []
    if len(reasons) > _MOST_REASONS:
        parts.append(Text(f"and {len(reasons) - _MOST_REASONS} more", style="dim"))
    if any(each.streams for each in read):
        parts += [Text(), _streams(read, width >= _WIDE)]
    return Group(*parts)


def _table(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in left:
        table.add_column(title, overflow="ellipsis", no_wrap=True, max_width=_MOST_NAME)
    for title in right:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _locations(statuses: Sequence[LocationStatus | Unreadable], is_wide: bool) -> Table:
    more = ("KIND", "BATCH", "INTERVAL") if is_wide else ()
    right = ("IN/S", "OUT/S", "LAG", "OLDEST", "LATE", "TOOK", *more)
    table = _table(("STATE", "LOCATION"), right)
    for each in statuses:
        if isinstance(each, Unreadable):
            table.add_row(Text("error", _STYLES["error"]), _text(each.name))
            continue
        level = health(each).level
        batch = _last_ended(each)
        records, age_ms = _lag(each)
        cells = [
            _number(rate_in(each)),
            _number(rate_out(each)),
            _count(records),
            _time(age_ms),
            _time(batch.scheduling_delay_ms if batch else None),
            _time(batch.processing_ms if batch else None),
        ]
        if is_wide:
            newest = str(each.batches[-1].batch_id) if each.batches else "-"
            cells += [each.kind, newest, _time(each.batch_interval_ms)]
        table.add_row(Text(level, _STYLES[level]), _text(each.name), *cells)
    return table


def _reasons(statuses: Sequence[LocationStatus | Unreadable]) -> list[Text]:
    """Return what is not all right, the worst first."""
    found: list[tuple[Level, str, str]] = []
    for each in statuses:
        if isinstance(each, Unreadable):
            found.append(("error", each.name, each.error))
        else:
            found += [(reason.level, each.name, reason.text) for reason in health(each).reasons]
    worst = list(_STYLES)[::-1]
    found.sort(key=lambda reason: worst.index(reason[0]))
    return [
        Text.assemble((f"{level:8}", _STYLES[level]), f"{printable(name)}: {printable(text)}")
        for level, name, text in found
    ]


def _streams(read: Sequence[LocationStatus], is_wide: bool) -> Table:
    more = ("HELD", "DEAD LETTERS", "CONSUMERS") if is_wide else ()
    right = ("IN/S", "BYTES", "BOUND", "LAG", "LOST", *more)
    table = _table(("STREAM", "RECEIVERS"), right)
    for each in read:
        dead = {s.dead_letters_of: s.records for s in each.streams if s.dead_letters_of}
        for stream in each.streams:
            if stream.dead_letters_of is not None:
                continue
            lag = max((consumer.lag_records for consumer in stream.consumers), default=None)
            cells: list[str | Text] = [
                _number(stream.rate),
                size(stream.size_bytes),
                _bound(stream),
                _count(lag),
                _alarming(stream.lost_records),
            ]
            if is_wide:
                letters = _alarming(dead.get(stream.name, 0))
                cells += [_count(stream.records), letters, str(len(stream.consumers))]
            name = f"{each.name}/{stream.name}" if len(read) > 1 else stream.name
            table.add_row(_text(name), _receivers(stream), *cells)
    return table


def _receivers(stream: StreamStatus) -> Text:
    """Return how many receivers are in each state, those that do not receive first."""
    text = Text()
    for state in ("dead", "restarting", "started", "stopped"):
        count = sum(receiver.state == state for receiver in stream.receivers)
        if count:
            style = _STYLES["error"] if state in ("dead", "restarting") else ""
            text.append(f"{', ' if text else ''}{count} {state}", style)
    return text or Text("-")


def _bound(stream: StreamStatus) -> str:
    if not stream.max_bytes:
        return "-"
    return f"{100 * stream.size_bytes / stream.max_bytes:.0f}%"


def _last_ended(status: LocationStatus) -> BatchStatus | None:
    ended = (each for each in reversed(status.batches) if each.state in ("committed", "failed"))
    return next(ended, None)


def _lag(status: LocationStatus) -> tuple[int | None, int | None]:
    """Return the records that wait, and the age of the oldest: of inputs, or of consumers."""
    each = [(i.lag_records, i.lag_ms) for i in status.inputs] or [
        (c.lag_records, c.lag_ms) for s in status.streams for c in s.consumers
    ]
    records = [count for count, _ in each if count is not None]
    ages = [age for _, age in each if age is not None]
    return (sum(records) if records else None), max(ages, default=None)


def _alarming(count: int) -> Text:
    return Text(_count(count), _STYLES["error"] if count else "")


def _text(name: str) -> Text:
    return Text(printable(name))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _time(value_ms: int | None) -> str:
    return "-" if value_ms is None else duration(value_ms)
