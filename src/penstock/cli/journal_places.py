"""The common part of commands on a journal: its location, its streams, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.errors import ConfigError
from penstock.journal import JournalStream, stream_names
from penstock.journal.layout import stream_info_path
from penstock.storage import Storage, attach_storage, open_existing

PathArgument = Annotated[
    str, typer.Argument(metavar="PATH", help="Journal, or checkpoint location with one in it.")
]
StreamArgument = Annotated[str | None, typer.Argument(help="Only this stream.", show_default="all")]
_HINT = "give the journal's folder, or its checkpoint location"


def open_journal(path: str) -> Storage:
    """Open the journal at ``path``, or in the checkpoint location there, which may be without one.

    Raises:
        ConfigError: the location does not exist.
    """
    storage = open_existing(path, operation="open journal", hint=_HINT)
    return attach_storage(f"{path.rstrip('/')}/journal") if _is_location(storage) else storage


def _is_location(storage: Storage) -> bool:
    # No other folder is read: users who may only read have no access to the state.
    is_folder = {entry.name: entry.is_folder for entry in storage.list()}
    return is_folder.get("metadata") is False or bool(
        is_folder.get("journal") and not storage.exists(stream_info_path("journal"))
    )


def open_location(path: str) -> Storage | None:
    """Open the checkpoint location at ``path``; None for a journal.

    Raises:
        ConfigError: the path does not exist.
    """
    storage = open_existing(path, operation="open journal", hint=_HINT)
    return storage if _is_location(storage) else None


def open_stream(journal: Storage, name: str) -> JournalStream:
    """Open a stream; ConfigError with the existing names if it does not exist."""
    (found,) = open_streams(journal, name)
    return found


def open_streams(journal: Storage, only: str | None) -> list[JournalStream]:
    """Open all streams, or only the requested one; raises as ``open_stream``."""
    return [JournalStream.open(journal, name) for name in names(journal, only)]


def names(journal: Storage, only: str | None) -> list[str]:
    """Return the names of all streams, or only the requested one; raises as ``open_stream``."""
    found = stream_names(journal)
    if only is None:
        return found
    if only not in found:
        raise ConfigError(
            f"stream {only!r} does not exist",
            operation="open stream",
            path=journal.url,
            hint=f"name one of: {', '.join(found)}" if found else "the journal holds no streams",
        )
    return [only]
