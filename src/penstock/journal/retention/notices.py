"""Announcements that outlive the retirement that made them: kept while blocks of it are left."""

from __future__ import annotations

from contextlib import suppress

from penstock.errors import LogFormatError
from penstock.journal.layout import consumer_path
from penstock.journal.retention.consumer_files import (
    publish_notice,
    read_consumer,
    read_notices,
    remove_notice,
)
from penstock.journal.stream import JournalStream
from penstock.model import Offsets

__all__ = ["remove_consumer", "remove_stale_notices"]


def remove_consumer(stream: JournalStream, consumer: str) -> None:
    """Forget a consumer, which must not be running: it holds nothing back any more.

    What it announced and has not deleted stays announced, until the next ``retire``.
    """
    with suppress(LogFormatError):  # damaged: then there is nothing to be known of it
        entry = read_consumer(stream, consumer)
        if entry is not None and _is_unfinished(stream, entry.retiring):
            publish_notice(stream, entry.retiring)
    stream.storage.delete(consumer_path(stream.name, consumer))


def remove_stale_notices(stream: JournalStream) -> None:
    """Remove what killed retirements announced, once nothing of it is left to delete."""
    for name, retiring in read_notices(stream).items():
        if not _is_unfinished(stream, retiring):
            remove_notice(stream, name)


def _is_unfinished(stream: JournalStream, retiring: Offsets) -> bool:
    """Whether anything of what was announced is left to delete."""
    return any(
        block.start_offset < end
        for writer, end in retiring.items()
        for block in stream.blocks(writer)[:1]
    )
