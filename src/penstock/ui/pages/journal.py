"""The journal: what each stream holds and who reads it, what was lost, what was refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.status.health import is_dead
from penstock.status.model import (
    ConsumerStatus,
    DeadLetterStatus,
    LocationStatus,
    LossStatus,
    StreamStatus,
    WriterStatus,
)
from penstock.ui import words
from penstock.ui.html import Child, Html, h
from penstock.ui.pages.layout import content, location_head
from penstock.ui.parts import (
    Cell,
    State,
    cell,
    code,
    empty,
    number,
    process_text,
    section,
    state,
    table,
    tiles,
)

_MOST_WRITERS = 50
_CONSUMERS = (
    "Consumer",
    "State",
    "Records behind",
    "Oldest of them",
    "Last commit",
    "Process",
    "Program's location",
)
_LOSSES = ("When", "Writer", "Offsets", "Records", "Reason", "Who")
_LETTERS = ("When", "Writer", "Offset", "Error", "Record")
_WRITERS = ("Writer", "State", "Blocks", "Size", "From offset", "To offset", "Records", "Lost")
_WRITER_STATES: dict[str, State] = {"open": "ok", "sealed": "stopped", "damaged": "error"}

Letters = Mapping[str, Sequence[DeadLetterStatus]]


def journal_page(index: int, status: LocationStatus, letters: Letters) -> Html:
    """Return the page; ``letters`` has the newest dead letters of each stream or Kafka input."""
    parts: list[Child] = [_stream(status, stream, letters) for stream in status.streams]
    names = {each.name for each in status.streams}
    parts += [
        section(f"Input {name}", _dead_letters(name, letters), id_=name)
        for name, count in status.dead_letters.items()
        if count and name not in names
    ]
    if status.losses:
        parts.append(section("Lost before they were read", _losses("Losses", status.losses)))
    return content(
        location_head(index, status, "journal"),
        parts or empty("There is no stream here yet."),
        read_ms=status.read_ms,
    )


def _stream(status: LocationStatus, stream: StreamStatus, letters: Letters) -> Html:
    now_ms = status.read_ms
    waiting = status.dead_letters.get(stream.name, 0)
    return section(
        f"Stream {stream.name}",
        tiles(
            ("In, records/s", words.rate(stream.rate), ""),
            ("Records held", words.count(stream.records), ""),
            ("Blocks", words.count(stream.blocks), ""),
            ("Size", words.size(stream.size_bytes), ""),
            ("Not committed", _uncommitted(stream), ""),
            ("Oldest block", words.age(stream.oldest_ms, now_ms), ""),
            ("Newest block", words.age(stream.newest_ms, now_ms), ""),
            ("Lag allowed", words.count(stream.max_lag_records), ""),
            ("Lost", words.count(stream.lost_records), "error" if stream.lost_records else ""),
            ("Dead letters", words.count(waiting), "warning" if waiting else ""),
        ),
        h("h3", "Consumers"),
        table(
            f"Consumers of {stream.name}",
            _CONSUMERS,
            [(each.name, _consumer(status, each)) for each in stream.consumers],
            none="No consumer: nothing reads this stream, and nothing is retired from it.",
        ),
        [h("h3", "Loss log"), _losses(f"Losses of {stream.name}", stream.losses)]
        if stream.losses
        else None,
        _dead_letters(stream.name, letters) if waiting else None,
        h(
            "details",
            h("summary", f"Writers ({len(stream.writers)}) and schema"),
            h("p", code(stream.schema)),
            table(
                f"Writers of {stream.name}",
                _WRITERS,
                [(each.writer, _writer(each)) for each in stream.writers[-_MOST_WRITERS:]],
            ),
            data_key=f"writers {stream.name}",
        ),
        id_=stream.name,
    )


def _uncommitted(stream: StreamStatus) -> str:
    held = words.size(stream.uncommitted_bytes)
    return held if stream.max_bytes is None else f"{held} of {words.size(stream.max_bytes)}"


def _consumer(status: LocationStatus, found: ConsumerStatus) -> Sequence[Cell]:
    process, now_ms = found.process, status.read_ms
    has_ended = process is not None and process.alive is False
    kind: State = "error" if is_dead(status, found) else "stopped" if has_ended else "ok"
    running = "alive" if process and process.alive else "not known"
    word = {"error": "dead", "stopped": "stopped"}.get(kind, running)
    return (
        cell(found.name, "name"),
        cell(state(kind, word)),
        number(words.count(found.lag_records), "error" if kind == "error" else ""),
        number(words.delay(found.lag_ms)),
        number(words.age(found.committed_ms, now_ms)),
        cell(process_text(process), "time"),
        cell(code(found.location) if found.location else "a plain reader"),
    )


def _losses(label: str, losses: Sequence[LossStatus]) -> Html:
    rows = [
        (
            f"{each.stream} {each.writer} {each.start_offset}",
            (
                cell(each.when.replace("T", " ").replace("+00:00", ""), "time"),
                cell(code(each.writer)),
                number(f"{each.start_offset:,} to {each.end_offset - 1:,}"),
                number(words.count(each.records), "error"),
                cell(each.reason, "reason"),
                cell(f"{each.who} on {each.host}"),
            ),
        )
        for each in losses
    ]
    return table(label, _LOSSES, rows)


def _dead_letters(source: str, letters: Letters) -> list[Child]:
    rows = [
        (
            f"{each.writer} {each.offset} {each.time_ms}",
            (
                cell(words.day_and_clock(each.time_ms), "time"),
                cell(code(each.writer)),
                number(words.count(each.offset)),
                cell(f"{each.error_type}: {each.error}", "error-text"),
                cell(code(each.text), "record"),
            ),
        )
        for each in letters.get(source, ())
    ]
    title = h("h3", "Dead letters", h("small", f"the newest {len(rows)}") if rows else None)
    return [
        title,
        table(f"Dead letters of {source}", _LETTERS, rows),
    ]


def _writer(found: WriterStatus) -> Sequence[Cell]:
    return (
        cell(code(found.writer), "name"),
        cell(state(_WRITER_STATES[found.state], found.state)),
        number(words.count(found.blocks)),
        number(words.size(found.size_bytes)),
        number(words.count(found.start_offset)),
        number(words.count(found.end_offset)),
        number(words.count(found.records)),
        number(words.count(found.lost), "error" if found.lost else ""),
    )
