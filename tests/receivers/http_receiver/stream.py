"""The journal's stream that these tests write, and what is in it."""

from __future__ import annotations

import os
from typing import Any

from penstock.journal import (
    JournalStream,
    RecordFormat,
)
from penstock.storage import Storage, open_storage

__all__ = ["open_stream"]


def open_stream(root: str | os.PathLike[str] | Storage, schema: Any = "string") -> JournalStream:
    storage = root if isinstance(root, Storage) else open_storage(root)
    return JournalStream.create(storage, "clicks", RecordFormat(schema))
