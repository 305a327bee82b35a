"""What stands at a path: which kind of location, and where its journal is."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.batched.inspection import is_checkpoint_path
from penstock.checkpoint.location_id import METADATA
from penstock.errors import ConfigError
from penstock.journal import stream_names
from penstock.journal.layout import stream_info_path
from penstock.status.model import Kind
from penstock.storage import Storage, attach_storage, open_existing

JOURNAL = "journal"
"""The folder of a program's journal in its checkpoint location."""
_LOGS = ("offsets", "commits")
_HINT = "give a checkpoint location or a journal"


@dataclass(frozen=True, slots=True)
class Place:
    """A location."""

    storage: Storage
    kind: Kind
    """``program`` also for a query: the newest batch tells which it is."""
    journal: Storage | None
    """None without one."""


def find_place(path: str) -> Place:
    """Return the location at a path or URL; nothing is written.

    Raises:
        ConfigError: there is no such folder, or it is not a location.
        StorageError: it cannot be listed.
    """
    storage = open_existing(path, operation="open location", hint=_HINT).without_sync()
    folders = {entry.name: entry.is_folder for entry in storage.list()}
    journal = _journal_in(storage) if folders.get(JOURNAL) else None
    if folders.get(METADATA) is False or any(folders.get(log) for log in _LOGS):
        return Place(storage, "program", journal)
    if journal is not None:
        return Place(storage, "journal", journal)
    if stream_names(storage):
        return Place(storage, "journal", storage)
    if is_checkpoint_path(path):
        return Place(storage, "batched", None)
    raise ConfigError(
        "this is neither a checkpoint location nor a journal, or no program has used it yet",
        operation="open location",
        path=path,
        hint=_HINT,
    )


def _journal_in(storage: Storage) -> Storage | None:
    if storage.exists(stream_info_path(JOURNAL)):  # a stream of that name, in a journal
        return None
    return attach_storage(f"{storage.url.rstrip('/')}/{JOURNAL}").without_sync()
