"""Retirement: old blocks are deleted when every registered consumer is past them.

Invariants:

1. A block is deleted only when every consumer has committed past its end, and none retains it for
   reprocessing.
2. The newest file of a writer is never deleted: it holds an open writer's end, and a sealed
   writer's fence and position. So a seal outlives any zombie.
3. Without a registered consumer nothing is retired.
4. A new consumer never begins at a block that is deleted after its check. Each side first publishes
   its own file, and then reads the other side's:

       retire:    plan -> announce the offsets -> read the consumers -> delete
       register:  claim, holding back everything -> read the announcements -> begin after them

   The side that reads second reads after both have published. So either the retiring process sees
   the claim and keeps the blocks, or the new consumer sees the announcement and begins after it.
5. What is retired is deleted in any order, in one request where the store can. So a crash or a
   failed deletion may leave any of it: blocks with holes between them, below ``retired_before``. No
   process reads there: consumers are past it, a new one begins behind the holes (``registration``),
   ``verify`` expects them, and the next call that retires deletes what was left.

What is announced stands in the consumer's own file, which a commit writes anyway (``retirer``), or
in a file of its own (``retire``). It must stay until its last block is deleted: the file has one
owner, so no other process replaces it, except a driver that slept through its own takeover (ADR 9):
a consumer that registers in that moment may find MissingBlockError. What was announced and not
deleted does no harm: every consumer was past it.

A crash leaves an announcement, too, which the owner's next commit replaces, or the next ``retire``
removes. Needs a storage whose listings show what was created before, in whatever process. Prior
art: Dekker's algorithm.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping

from penstock.journal.layout import WriterId, block_path
from penstock.journal.offsets import is_finished
from penstock.journal.retention.consumer_files import (
    ConsumerEntry,
    held_offsets,
    publish_notice,
    read_consumers,
    remove_notice,
)
from penstock.journal.retention.notices import remove_stale_notices
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange, Offsets

Doomed = Mapping[WriterId, list[OffsetRange]]
"""The blocks of each writer that a retirement plans to delete, oldest first."""


def retire(stream: JournalStream) -> int:
    """Delete the blocks that every consumer has passed; return their number.

    For repeated calls, batch after batch, use penstock.journal.retention.retirer: its cost does not
    grow with the number of sealed writers.

    Raises:
        LogFormatError: a consumer's file is damaged.
        StorageError: a file could not be read or deleted; the call can be repeated.
    """
    held = held_offsets(read_consumers(stream).values())
    if not held:
        return 0
    floors = {writer: floor_of(writer, held) for writer in stream.writers()}
    doomed = plan_blocks(stream, floors)
    retired = 0
    if doomed:
        notice = publish_notice(stream, announcement(doomed))
        retired = delete_blocks(stream, doomed, held_offsets(read_consumers(stream).values()))
        remove_notice(stream, notice)
    remove_stale_notices(stream)
    return retired


def plan_blocks(stream: JournalStream, floors: Mapping[WriterId, int | None]) -> Doomed:
    """Return the blocks up to the floors; for writers without a floor, all except the newest."""
    doomed: dict[WriterId, list[OffsetRange]] = {}
    for writer, floor in floors.items():
        # A block ends where the next one starts; the newest one has no next one and is kept.
        for block, following in itertools.pairwise(stream.blocks(writer)):
            end = following.start_offset
            if floor is None or end <= floor:
                blocks = doomed.setdefault(writer, [])
                blocks.append(OffsetRange(str(writer), block.start_offset, end))
    return doomed


def announcement(doomed: Doomed) -> dict[str, int]:
    """Return the announcement that must be durable before ``delete_blocks``."""
    return {str(writer): blocks[-1].end_offset for writer, blocks in doomed.items()}


def delete_blocks(stream: JournalStream, doomed: Doomed, held: Collection[Offsets]) -> int:
    """Delete planned blocks, unless a consumer needs them; return the number of deleted ones.

    ``held`` are the offsets from which consumers hold blocks back, read after the announcement.
    """
    if not held:
        return 0
    paths: list[str] = []
    for writer, blocks in doomed.items():
        floor = floor_of(writer, held)
        paths += (
            block_path(stream.name, writer, block.start_offset)
            for block in blocks
            if floor is None or block.end_offset <= floor
        )
    stream.storage.delete_all(paths)
    return len(paths)


def floor_of(writer: WriterId, held: Iterable[Offsets]) -> int | None:
    """Return the offset that all consumers have passed; None if the writer is finished for all."""
    ends = [offsets.get(str(writer), 0) for offsets in held if not is_finished(writer, offsets)]
    return min(ends, default=None)


def retired_before(
    writer: WriterId, entries: Iterable[ConsumerEntry], retiring: Offsets
) -> int | None:
    """Return the offset before which any of a writer's blocks may be gone; None for all of them.

    Args:
        writer: whose blocks.
        entries: the consumers'; those that have not begun yet do not count.
        retiring: what is announced (``retiring_offsets``).
    """
    begun = [each for each in entries if each.owner is None or each.begin is not None]
    floor = floor_of(writer, held_offsets(begun)) if begun else 0
    return None if floor is None else max(floor, retiring.get(str(writer), 0))
