"""Shortens the reprocessing period of a stream that has reached its bound in bytes.

Blocks that all consumers have committed are kept for as long as a consumer retains them, so that
batches can be processed again. If a receiver's bound leaves no other way to store more, they are
deleted earlier, oldest first.

Invariants:

1. Only blocks that every consumer has committed are deleted, and never a writer's newest file: the
   invariants of ``retirement`` apply, except for retained blocks.
2. Of each receiver the oldest blocks go first, and of several receivers about the same part each.
   So what is left is whole from some offsets on.

Whoever stores, not the driver, calls this: a full journal is known there, and the driver may be
down. Any number of processes may do it at once.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from penstock.journal.layout import WriterId
from penstock.journal.retention.consumer_files import (
    consumers,
    publish_notice,
    remove_notice,
)
from penstock.journal.retention.retirement import announcement, delete_blocks, floor_of
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

__all__ = ["Shortened", "shorten_retention"]


@dataclass(frozen=True, slots=True)
class Shortened:
    """The blocks that were deleted early."""

    records: int = 0
    size_bytes: int = 0

    def __add__(self, other: Shortened) -> Shortened:
        return Shortened(self.records + other.records, self.size_bytes + other.size_bytes)


@dataclass(frozen=True, slots=True)
class _Block:
    writer: WriterId
    records: OffsetRange
    size_bytes: int


def shorten_retention(
    stream: JournalStream, size_bytes: int, receivers: Collection[str]
) -> Shortened:
    """Delete these receivers' oldest blocks that are only retained, of that many bytes at least.

    Returns:
        What was deleted: less than that when there is no more, nothing without a consumer.

    Raises:
        LogFormatError: a consumer's file is damaged.
        StorageError: a file could not be read, written or deleted; the call can be repeated.
    """
    chosen: list[_Block] = []
    for block in _oldest_first(stream, receivers):
        if sum(each.size_bytes for each in chosen) >= size_bytes:
            break
        chosen.append(block)
    if not chosen:
        return Shortened()
    doomed: dict[WriterId, list[OffsetRange]] = {}
    for block in chosen:
        doomed.setdefault(block.writer, []).append(block.records)
    notice = publish_notice(stream, announcement(doomed))
    delete_blocks(stream, doomed, list(consumers(stream).values()))
    remove_notice(stream, notice)
    records = sum(block.records.count for block in chosen)
    return Shortened(records, sum(block.size_bytes for block in chosen))


def _oldest_first(stream: JournalStream, receivers: Collection[str]) -> list[_Block]:
    """Return the blocks that are committed, the oldest of each receiver in turn with the others'.

    Nothing tells how old a block is but its place among its receiver's.
    """
    by_receiver: dict[str, list[_Block]] = defaultdict(list)
    for block in _committed_blocks(stream, receivers):
        by_receiver[block.writer.receiver].append(block)
    placed = [
        (at / len(blocks), block)
        for blocks in by_receiver.values()
        for at, block in enumerate(blocks)
    ]
    return [block for _, block in sorted(placed, key=lambda each: each[0])]


def _committed_blocks(stream: JournalStream, receivers: Collection[str]) -> Iterator[_Block]:
    committed = list(consumers(stream).values())
    if not committed:
        return
    for writer in (each for each in stream.writers() if each.receiver in receivers):
        floor = floor_of(writer, committed)
        for block, following in itertools.pairwise(stream.blocks(writer)):
            end = following.start_offset
            if floor is None or end <= floor:
                yield _Block(writer, OffsetRange(str(writer), block.start_offset, end), block.size)
