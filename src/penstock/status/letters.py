"""The newest dead letters of a stream: records that parsers refused, as text."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from penstock.errors import PenstockError
from penstock.journal.bad_records.dead_letters import DeadLetterFolder
from penstock.status.model import MOST_LETTERS, DeadLetterStatus
from penstock.storage import Storage

_MOST_TEXT = 400


def read_letters(journal: Storage, source: str) -> tuple[DeadLetterStatus, ...]:
    """Return the newest dead letters of a stream or Kafka input, newest first.

    Those that cannot be read are left out: `penstock journal verify` says why.
    """
    found: list[DeadLetterStatus] = []
    try:
        for table in _newest_tables(DeadLetterFolder(journal, source)):
            found += map(_letter, table.to_pylist())
    except PenstockError:
        pass
    found.sort(key=lambda letter: letter.time_ms, reverse=True)
    return tuple(found[:MOST_LETTERS])


def _newest_tables(dead: DeadLetterFolder) -> Iterator[pa.Table]:
    """Yield the letters of the last files, which have those of the last records of a writer."""
    count = 0
    for file in reversed(dead.waiting()):
        if count >= MOST_LETTERS:
            return
        yield dead.read(file)
        count += file.count


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
    )
