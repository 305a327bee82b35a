"""The newest dead letters of a stream: records that parsers refused, as text."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.journal.bad_records.dead_letters import (
    last_writer,
    open_dead_letters,
    uncollected,
)
from penstock.journal.reader import slice_ranges
from penstock.journal.record_reader import numbered_pieces
from penstock.model import OffsetRange
from penstock.status.model import MOST_LETTERS, DeadLetterStatus
from penstock.storage import Storage

__all__ = ["read_letters"]

_MOST_TEXT = 400


def read_letters(journal: Storage, name: str) -> tuple[DeadLetterStatus, ...]:
    """Return the newest dead letters of a stream of such, newest first.

    Those that cannot be read are left out: `penstock journal verify` says why.
    """
    found: list[DeadLetterStatus] = []
    try:
        for table in _tables(journal, name):
            found += map(_letter, table.slice(max(0, table.num_rows - MOST_LETTERS)).to_pylist())
    except PenstockError:
        pass
    found.sort(key=lambda letter: letter.time_ms, reverse=True)
    return tuple(found[:MOST_LETTERS])


def _tables(journal: Storage, name: str) -> Iterator[pa.RecordBatch | pa.Table]:
    stream = open_dead_letters(journal, name)
    yield from uncollected(stream)
    writer, newest = last_writer(stream)
    end = newest.end_offset
    held = stream.blocks(writer)
    start = max(held[0].start_offset if held else end, end - MOST_LETTERS)
    for part in slice_ranges(stream, [OffsetRange(str(writer), start, end)]) if start < end else ():
        for _, piece in numbered_pieces(stream, part):
            yield piece


def _letter(row: dict[str, object]) -> DeadLetterStatus:
    raw, time = row["raw"], row["time"]
    text = raw.decode("utf-8", errors="backslashreplace") if isinstance(raw, bytes) else str(raw)
    return DeadLetterStatus(
        writer=str(row["writer"]),
        offset=int(str(row["offset"])),
        error_type=str(row["error_type"]),
        error=str(row["error"])[:_MOST_TEXT],
        text=text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…",
        time_ms=round(time.timestamp() * 1000),  # type: ignore[attr-defined]
        attempts=int(str(row["attempts"])),
    )
