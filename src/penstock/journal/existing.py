"""Opens a stream that another process writes; never creates one."""

from __future__ import annotations

import os

from penstock.errors import ConfigError
from penstock.journal.description import stream_names
from penstock.journal.stream import JournalStream
from penstock.storage import open_storage
from penstock.storage.urls import local_root


def open_existing(journal: str, stream: str, allow_pickle: bool) -> JournalStream:
    """Return a stream that exists already.

    Args:
        journal: the path or URL of the journal.
        stream: its name there.
        allow_pickle: see ``JournalStream.open``.

    Raises:
        ConfigError: the journal or stream does not exist, or it holds pickles and other users can
            write to it.
    """
    root = local_root(journal)
    if root is not None and not os.path.isdir(root):  # opening would create it
        raise _no_stream(journal, stream, f"folder {root} does not exist")
    storage = open_storage(journal)
    names = stream_names(storage)
    if stream not in names:
        raise _no_stream(storage.url, stream, f"the journal holds {_listed(names)}")
    return JournalStream.open(storage, stream, allow_pickle=allow_pickle)


def _listed(names: list[str]) -> str:
    return f"only {', '.join(map(repr, names))}" if names else "no streams"


def _no_stream(journal: str, stream: str, why: str) -> ConfigError:
    return ConfigError(
        f"stream {stream!r} does not exist: {why}",
        operation="open stream",
        path=journal,
        ids={"stream": stream},
        hint="start its writer first (`penstock ingest`, or the program with its receivers); "
        "the journal of a checkpoint location is its folder 'journal'",
    )
