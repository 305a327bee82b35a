"""Announcements that outlive their retirement: they are kept while its blocks are left."""

from __future__ import annotations

from contextlib import suppress

from penstock.errors import LogFormatError
from penstock.journal.layout import consumer_path
from penstock.journal.retention.claims import remove_claims
from penstock.journal.retention.consumer_files import (
    publish_notice,
    read_consumer,
    read_notices,
    remove_notice,
)
from penstock.journal.stream import JournalStream
from penstock.model import Offsets


def remove_consumer(stream: JournalStream, consumer: str) -> None:
    """Remove a consumer, which must not be running: it holds nothing back any more.

    Blocks that it announced and did not delete stay announced until the next ``retire``.
    """
    with suppress(LogFormatError):  # damaged: its content is unknown
        entry = read_consumer(stream, consumer)
        if entry is not None and _is_unfinished(stream, entry.retiring):
            publish_notice(stream, entry.retiring)
    stream.storage.delete(consumer_path(stream.name, consumer))
    remove_claims(stream, consumer)


def remove_stale_notices(stream: JournalStream) -> None:
    """Remove announcements of killed retirements, once none of their blocks is left."""
    for name, retiring in read_notices(stream).items():
        if not _is_unfinished(stream, retiring):
            remove_notice(stream, name)


def _is_unfinished(stream: JournalStream, retiring: Offsets) -> bool:
    """Whether any announced block is left to delete."""
    return any(
        block.start_offset < end
        for writer, end in retiring.items()
        for block in stream.blocks(writer)[:1]
    )
