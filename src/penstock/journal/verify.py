"""Verify a stream: every byte of every block, and that no block is missing between two others."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import (
    DamagedBlockError,
    JournalError,
    LogFormatError,
    MissingBlockError,
    NewerBlockError,
    NotFoundError,
    StorageError,
)
from penstock.journal.block import BlockFooter, read_block
from penstock.journal.layout import WriterId, block_path
from penstock.journal.losses.ledger import Lost, lost_ranges, without_lost
from penstock.journal.retention.consumer_files import consumers
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.model import OffsetRange

__all__ = ["Verdict", "check_block", "known_end", "verify_stream"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification found of one block: its footer, or the error that names the damage."""

    writer: WriterId
    block: BlockEntry
    next_start: int | None
    """Where the next block starts, so where this one should end; None for the newest."""
    footer: BlockFooter | None
    error: JournalError | StorageError | None
    unreadable: OffsetRange | None = None
    """The records that cannot be read, where that is known; of the newest block perhaps not all."""
    given_up: bool = False
    """Whether the ledger of losses has all of them, so that readers leave them out."""


def verify_stream(stream: JournalStream) -> Iterator[Verdict]:
    """Yield a verdict for each block of the stream, by writer and offset. Reads every byte.

    Can run while the stream is written and retired: blocks that are retired meanwhile are left out.
    """
    lost = lost_ranges(stream.storage, stream.name)
    for writer in stream.writers():
        blocks = stream.blocks(writer)
        starts = [block.start_offset for block in blocks]
        for block, next_start in itertools.zip_longest(blocks, starts[1:]):
            try:
                footer = check_block(stream, writer, block, next_start)
                _check_gap(stream, writer, footer, next_start, lost)
                yield Verdict(writer, block, next_start, footer, None)
            except NotFoundError as e:
                if not _is_retired(stream, writer, block):
                    yield Verdict(writer, block, next_start, None, e)
            except (JournalError, StorageError) as e:
                unreadable = _unreadable(stream, writer, block, next_start, e)
                given_up = unreadable is not None and not without_lost([unreadable], lost)
                yield Verdict(writer, block, next_start, None, e, unreadable, given_up)


def known_end(stream: JournalStream, writer: WriterId, start_offset: int) -> int:
    """Return where a writer's newest block, from ``start_offset`` on, ends, as far as can be told.

    As its footer says; without one no earlier than where consumers already are.
    """
    with suppress(DamagedBlockError, StorageError):
        return stream.footer(writer, start_offset).end_offset
    taken: list[int] = []
    with suppress(LogFormatError):
        taken = [offsets.get(str(writer), 0) for offsets in consumers(stream).values()]
    return max([start_offset + 1, *taken])


def check_block(
    stream: JournalStream, writer: WriterId, block: BlockEntry, next_start: int | None
) -> BlockFooter:
    """Read a block, check every byte of it and its place, and return its footer.

    Raises:
        DamagedBlockError: it is damaged, or not what its name says.
        NewerBlockError: a newer version wrote it.
        StorageError: it could not be read.
    """
    path = block_path(stream.name, writer, block.start_offset)
    uri = stream.storage.uri(path)
    footer, parquet = read_block(stream.storage.read(path), uri)
    if parquet.schema_arrow.remove_metadata() != stream.format.stored:
        raise DamagedBlockError(
            f"block has columns ({', '.join(map(str, parquet.schema_arrow))}), not the stream's",
            operation="verify block",
            path=uri,
            hint="it was copied here from another stream: restore the right one",
        )
    end = footer.end_offset if next_start is None else next_start
    if (
        footer.start_offset != block.start_offset
        or footer.end_offset > end
        or (footer.sealed and next_start is not None)
    ):
        raise DamagedBlockError(
            f"block {'seals at' if footer.sealed else 'holds'} [{footer.start_offset}, "
            f"{footer.end_offset}), which does not fit its name and the names after it",
            operation="verify block",
            path=uri,
            hint="blocks were renamed or copied by hand: restore the journal from a copy",
        )
    return footer


def _check_gap(
    stream: JournalStream,
    writer: WriterId,
    footer: BlockFooter,
    next_start: int | None,
    lost: Lost,
) -> None:
    """Raise MissingBlockError unless a block reaches the next one, but for what was given up."""
    if next_start is None:
        return
    gap = OffsetRange(str(writer), footer.end_offset, next_start)
    for hole in without_lost([gap], lost)[:1]:
        start, end = hole.start_offset, hole.end_offset
        raise MissingBlockError(
            f"records [{start}, {end}) are missing: no block after this one holds them",
            operation="verify block",
            path=stream.storage.uri(block_path(stream.name, writer, footer.start_offset)),
            ids={"stream": stream.name, "writer": str(writer), "start": start, "end": end},
            hint=f"restore {start:020d}.parquet, and what follows it, from a copy",
        )


def _unreadable(
    stream: JournalStream,
    writer: WriterId,
    block: BlockEntry,
    next_start: int | None,
    error: JournalError | StorageError,
) -> OffsetRange | None:
    """Return which records an error keeps from being read; None when they may be sound."""
    if isinstance(error, MissingBlockError):
        return OffsetRange(str(writer), error.ids["start"], error.ids["end"])
    if isinstance(error, NewerBlockError) or not isinstance(error, DamagedBlockError):
        return None
    start = block.start_offset
    end = known_end(stream, writer, start) if next_start is None else next_start
    return OffsetRange(str(writer), start, end)


def _is_retired(stream: JournalStream, writer: WriterId, block: BlockEntry) -> bool:
    """Whether a block that is gone was retired: retention takes the oldest first."""
    left = stream.blocks(writer)
    return bool(left) and block.start_offset < left[0].start_offset
