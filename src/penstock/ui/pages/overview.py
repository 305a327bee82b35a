"""The overview: what needs attention, every program and query, every stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.status import Health, LocationStatus, Unreadable, health
from penstock.status.health import is_dead
from penstock.status.model import BatchStatus, StreamStatus
from penstock.status.rates import rate_in, rate_out
from penstock.ui import words
from penstock.ui.charts import sparkline
from penstock.ui.html import Child, Html, h
from penstock.ui.pages.layout import TABS, content, reason_link
from penstock.ui.parts import Cell, cell, level_badge, number, section, state, table

_MOST_REASONS = 20
_SPARK = 60
_PROGRAMS = (
    "State",
    "Program",
    "In records/s",
    "Records per batch",
    "Out records/s",
    "Waiting",
    "Oldest",
    "Scheduling delay",
    "Processing",
    "Interval",
    "Last batch",
    "Last error",
)
_STREAMS = (
    "Stream",
    "Location",
    "In records/s",
    "Receivers",
    "Consumers",
    "Most behind",
    "Oldest",
    "Size",
    "Lost",
    "Dead letters",
)

Found = LocationStatus | Unreadable
_Judged = tuple[int, LocationStatus, Health]


def overview(found: Sequence[Found]) -> Html:
    """Return the page about all locations, in the order in which they were given."""
    judged = [
        (index, each, health(each))
        for index, each in enumerate(found)
        if isinstance(each, LocationStatus)
    ]
    programs = [each for each in judged if each[1].kind != "journal"]
    streams = [(index, each, s) for index, each, _ in judged for s in each.streams]
    return content(
        h("div", h("h1", "Overview"), class_="title"),
        _attention(found, judged),
        section(
            "Programs and queries",
            table("Programs and queries", _PROGRAMS, map(_program, programs), none="None here."),
        )
        if programs
        else None,
        section("Streams", table("Streams", _STREAMS, _streams(streams), none="None here."))
        if streams
        else None,
        read_ms=max((each.read_ms for _, each, _ in judged), default=None),
    )


def _attention(found: Sequence[Found], judged: Sequence[_Judged]) -> Html:
    reasons = [
        (reason, index, each.name)
        for index, each, its in judged
        for reason in its.reasons
        if reason.level != "stopped"
    ]
    reasons.sort(key=lambda each: each[0].level != "error")
    rows: list[Child] = [
        h("li", h("i", class_="dot error", aria_hidden="true"), h("b", each.name), each.error)
        for each in found
        if isinstance(each, Unreadable)
    ]
    rows += [
        h(
            "li",
            h("i", class_=f"dot {reason.level}", aria_hidden="true"),
            h("b", name),
            reason_link(index, reason),
            class_=reason.level,
        )
        for reason, index, name in reasons[:_MOST_REASONS]
    ]
    if not rows:
        calm = state("ok", "Everything keeps up, and nothing was lost.")
        return section("Needs attention", h("p", calm, class_="calm"))
    more = len(reasons) - _MOST_REASONS
    return section(
        "Needs attention",
        h("ul", rows, class_="reasons"),
        h("p", f"and {more} more", class_="empty") if more > 0 else None,
        note=f"{len(reasons) + len(rows) - min(len(reasons), _MOST_REASONS)}",
    )


def _program(judged: _Judged) -> tuple[str, Sequence[Cell]]:
    index, status, its = judged
    first = next(tab.path for tab in TABS if status.kind in tab.kinds)
    last = _last_ended(status)
    interval_ms = status.batch_interval_ms
    late = last.scheduling_delay_ms if last else None
    took = last.processing_ms if last else None
    return str(index), (
        cell(level_badge(its.level)),
        cell(h("a", status.name, href=f"/{index}/{first}"), "name"),
        number(words.rate(rate_in(status))),
        cell(_spark(status)),
        number(words.rate(rate_out(status))),
        number(words.count(_lag_records(status))),
        number(words.delay(max((i.lag_ms for i in status.inputs if i.lag_ms), default=None))),
        number(words.delay(late), "warning" if _over(late, interval_ms) else ""),
        number(words.delay(took), "warning" if _over(took, interval_ms) else ""),
        number(words.delay(interval_ms)),
        number(words.UNKNOWN if status.committed < 0 else str(status.committed)),
        cell(_last_error(status), "error-text clip"),
    )


def _over(value: int | None, interval_ms: int | None) -> bool:
    return value is not None and interval_ms is not None and value > interval_ms


def _last_ended(status: LocationStatus) -> BatchStatus | None:
    ended = [b for b in status.batches if b.state == "committed" and b.processing_ms is not None]
    return ended[-1] if ended else None


def _lag_records(status: LocationStatus) -> int | None:
    known = [each.lag_records for each in status.inputs if each.lag_records is not None]
    return sum(known) if known else None


def _spark(status: LocationStatus) -> Html:
    values = [each.records for each in status.batches[-_SPARK:]]
    return sparkline(values, f"Records of the last {len(values)} batches")


def _last_error(status: LocationStatus) -> str:
    failed = [each for each in status.batches if each.error is not None]
    errors = [r.last_error for s in status.streams for r in s.receivers if r.last_error]
    if failed:
        return f"batch {failed[-1].batch_id}: {failed[-1].error}"
    return errors[-1] if errors else ""


def _streams(
    found: Sequence[tuple[int, LocationStatus, StreamStatus]],
) -> Iterator[tuple[str, Sequence[Cell]]]:
    for index, status, stream in found:
        cells = _stream(index, status, stream, status.dead_letters.get(stream.name, 0))
        yield f"{index} {stream.name}", cells


def _stream(
    index: int, status: LocationStatus, stream: StreamStatus, letters: int
) -> Sequence[Cell]:
    running = [each for each in stream.receivers if each.state == "started"]
    down = [each for each in stream.receivers if each.state in ("dead", "restarting")]
    ended = [each for each in stream.consumers if each.process and each.process.alive is False]
    dead = [each for each in ended if is_dead(status, each)]
    gone = [
        f"{len(found)} {word}"
        for found, word in ((dead, "dead"), ([e for e in ended if e not in dead], "stopped"))
        if found
    ]
    receivers = f"{len(running)} of {len(stream.receivers)} up" if stream.receivers else "none"
    lags = [each.lag_records for each in stream.consumers]
    return (
        cell(h("a", stream.name, href=f"/{index}/journal#{stream.name}"), "name"),
        cell(status.name),
        number(words.rate(stream.rate)),
        number(receivers, "error" if down else ""),
        number(", ".join([str(len(stream.consumers)), *gone]), _tone(dead)),
        number(words.count(max(lags, default=None)), _tone(dead)),
        number(words.delay(max((c.lag_ms for c in stream.consumers if c.lag_ms), default=None))),
        number(words.size(stream.size_bytes)),
        number(words.count(stream.lost_records), "error" if stream.lost_records else ""),
        number(words.count(letters), "warning" if letters else ""),
    )


def _tone(dead: Sequence[object]) -> str:
    return "error" if dead else ""
