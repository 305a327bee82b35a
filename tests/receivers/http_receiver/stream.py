"""The journal's stream that these tests write, and what is in it."""

from __future__ import annotations

import os
from typing import Any

from penstock.journal import (
    JournalStream,
    RecordFormat,
    StreamProgress,
    advance,
    ranges_between,
    read_records,
)
from penstock.storage import Storage, open_storage

__all__ = ["journal_records", "open_stream"]


def open_stream(root: str | os.PathLike[str] | Storage, schema: Any = "string") -> JournalStream:
    storage = root if isinstance(root, Storage) else open_storage(root)
    return JournalStream.create(storage, "clicks", RecordFormat(schema))


def journal_records(stream: JournalStream) -> list[Any]:
    """Return all records that are durable, in the order of the epochs."""
    ends = advance({}, StreamProgress(stream).ends({}))
    return list(read_records(stream, ranges_between({}, ends)))
