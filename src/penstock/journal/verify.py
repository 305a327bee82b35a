"""Verify a stream: every byte of every block, and that no block is missing.

A block is missing between two others if the previous one does not extend to the next, unless all
consumers are past it: any part of retired blocks may be left. A block is missing before the first
or after the last if a consumer still has to read there, or has been there. Without a consumer this
cannot be detected: blocks before the first one may have been retired.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.errors import (
    DamagedBlockError,
    JournalError,
    LogFormatError,
    MissingBlockError,
    NewerBlockError,
    NotFoundError,
    PenstockError,
    StorageError,
)
from penstock.journal.bad_records.dead_letters import DeadLetterFolder
from penstock.journal.block import BlockFooter, read_block
from penstock.journal.layout import WriterId, block_path, writer_folder
from penstock.journal.losses.loss_log import (
    Lost,
    end_after_losses,
    lost_ranges,
    read_losses,
    without_lost,
)
from penstock.journal.retention.consumer_files import (
    consumers,
    read_consumers,
    retiring_offsets,
)
from penstock.journal.retention.retirement import retired_before
from penstock.journal.stream import BlockEntry, JournalStream
from penstock.model import OffsetRange, Offsets


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result for one block: its footer, or the error that names the damage.

    If blocks are missing, ``block`` is None.
    """

    writer: WriterId
    block: BlockEntry | None
    footer: BlockFooter | None
    error: JournalError | StorageError | None
    unreadable: OffsetRange | None = None
    """The unreadable records, if known; for the newest block possibly not all of them."""
    left: Sequence[OffsetRange] = ()
    """The part of them that is not in the loss log."""

    @property
    def skipped(self) -> bool:
        """Whether the loss log has all of them, so that readers leave them out."""
        return self.unreadable is not None and not self.left


def verify_stream(stream: JournalStream) -> Iterator[Verdict]:
    """Yield a verdict for each block of the stream, by writer and offset. Reads every byte.

    Can run while the stream is written and retired: blocks that are retired meanwhile are left out.
    """
    lost = lost_ranges(stream.storage, stream.name)
    reached = _committed(stream)  # before blocks are listed: blocks must extend this far
    listed: dict[WriterId, list[BlockEntry]] = {}
    for writer in stream.writers():
        listed[writer] = stream.blocks(writer)
        yield from _verify_blocks(stream, writer, listed[writer], lost)
    needed = _committed(stream)  # after that: blocks were retired up to this offset at most
    for writer, blocks in listed.items():
        for hole in _holes_around(stream, writer, blocks, needed, reached, lost):
            yield _missing(stream, writer, hole, lost)


def _verify_blocks(
    stream: JournalStream, writer: WriterId, blocks: Sequence[BlockEntry], lost: Lost
) -> Iterator[Verdict]:
    starts = [block.start_offset for block in blocks]
    for block, next_start in itertools.zip_longest(blocks, starts[1:]):
        try:
            footer = check_block(stream, writer, block, next_start)
            yield Verdict(writer, block, footer, None)
        except NotFoundError as e:
            if not _is_retired(stream, writer, block.start_offset):
                yield Verdict(writer, block, None, e)
        except (JournalError, StorageError) as e:
            unreadable = _unreadable(stream, writer, block, next_start, e)
            left = without_lost([unreadable], lost) if unreadable else ()
            yield Verdict(writer, block, None, e, unreadable, left)
        else:
            if (
                next_start is not None
                and footer.end_offset < next_start
                and not _is_retired(stream, writer, footer.end_offset)
            ):
                hole = OffsetRange(str(writer), footer.end_offset, next_start)
                yield _missing(stream, writer, hole, lost)


def _holes_around(
    stream: JournalStream,
    writer: WriterId,
    blocks: Sequence[BlockEntry],
    needed: Sequence[Offsets],
    reached: Sequence[Offsets],
    lost: Lost,
) -> Iterator[OffsetRange]:
    """Yield records missing before a writer's first and after its last block, by the consumers."""
    name = str(writer)
    begin = blocks[0].start_offset if blocks else 0
    first = min((offsets[name] for offsets in needed if name in offsets), default=begin)
    if first < begin:
        yield OffsetRange(name, first, begin)
    try:
        newest = stream.footer(writer, blocks[-1].start_offset) if blocks else None
    except (JournalError, StorageError):
        return  # it has a separate verdict, and its end is unknown
    end = end_after_losses(name, newest.end_offset if newest else 0, lost)
    last = max((offsets[name] for offsets in reached if name in offsets), default=end)
    if end < last:
        yield OffsetRange(name, end, last)


def _committed(stream: JournalStream) -> list[Offsets]:
    """Return the consumers' offsets; empty if unreadable, which `verify_files` reports."""
    with suppress(LogFormatError):
        return list(consumers(stream).values())
    return []


def verify_files(stream: JournalStream) -> Iterator[PenstockError]:
    """Yield an error for each damaged file of consumers and losses.

    Only the first one of each kind.
    """
    for read in (consumers, _loss_log):
        try:
            read(stream)
        except LogFormatError as error:
            yield error


def verify_letters(dead: DeadLetterFolder) -> Iterator[DamagedBlockError]:
    """Yield an error for each damaged file of dead letters."""
    for file in dead.waiting():
        try:
            dead.read(file)
        except DamagedBlockError as error:
            yield error
        except NotFoundError:  # replayed meanwhile
            continue


def _loss_log(stream: JournalStream) -> None:
    read_losses(stream.storage, stream.name)


def _known_end(stream: JournalStream, writer: WriterId, start_offset: int) -> int:
    """Return the known end of a writer's newest block, which begins at ``start_offset``.

    From its footer; without one, at least the offset of the consumers.
    """
    with suppress(DamagedBlockError, StorageError):
        return stream.footer(writer, start_offset).end_offset
    return max(start_offset + 1, reached_end(stream, writer))


def reached_end(stream: JournalStream, writer: WriterId) -> int:
    """Return the greatest offset of consumers in a writer, up to which records were durable."""
    return max((offsets.get(str(writer), 0) for offsets in _committed(stream)), default=0)


def check_block(
    stream: JournalStream, writer: WriterId, block: BlockEntry, next_start: int | None
) -> BlockFooter:
    """Read a block, check every byte and its offsets, and return its footer.

    Raises:
        DamagedBlockError: it is damaged, or does not match its name.
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
            f"{footer.end_offset}), which does not match its name and the later names",
            operation="verify block",
            path=uri,
            hint="blocks were renamed or copied by hand: restore the journal from a copy",
        )
    return footer


def _missing(stream: JournalStream, writer: WriterId, hole: OffsetRange, lost: Lost) -> Verdict:
    """Return the verdict on records that no block holds."""
    start, end = hole.start_offset, hole.end_offset
    error = MissingBlockError(
        f"records [{start}, {end}) are missing: no block holds them",
        operation="verify block",
        path=stream.storage.uri(writer_folder(stream.name, writer)),
        ids={"stream": stream.name, "writer": str(writer), "start": start, "end": end},
        hint="restore the files with these records from a copy; a file's name is the offset of its "
        "first record",
    )
    return Verdict(writer, None, None, error, hole, without_lost([hole], lost))


def _unreadable(
    stream: JournalStream,
    writer: WriterId,
    block: BlockEntry,
    next_start: int | None,
    error: JournalError | StorageError,
) -> OffsetRange | None:
    """Return the records that cannot be read because of an error; None if they may be intact."""
    if isinstance(error, NewerBlockError) or not isinstance(error, DamagedBlockError):
        return None
    start = block.start_offset
    end = _known_end(stream, writer, start) if next_start is None else next_start
    return OffsetRange(str(writer), start, end)


def _is_retired(stream: JournalStream, writer: WriterId, start_offset: int) -> bool:
    """Whether the records from ``start_offset`` on that no block holds were retired."""
    starts = [block.start_offset for block in stream.blocks(writer)]
    later = [start for start in starts if start > start_offset]
    if not later:  # the newest file of a writer is never retired
        return False
    if later == starts:  # before the first block: ``_holes_around`` reports what consumers miss
        return True
    with suppress(LogFormatError):  # `verify_files` reports it
        entries = read_consumers(stream).values()
        before = retired_before(writer, entries, retiring_offsets(stream))
        return before is None or later[0] <= before
    return False
