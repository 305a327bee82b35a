"""What stands for a writer's newest block that is damaged and was skipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.errors import DamagedBlockError, NewerBlockError, NotFoundError
from penstock.journal.block import BlockFooter
from penstock.journal.layout import parse_writer
from penstock.journal.losses.loss_log import end_after_losses, lost_ranges

if TYPE_CHECKING:
    from penstock.journal.stream import BlockEntry, JournalStream


def skipped_footer(
    stream: JournalStream, writer: str, blocks: list[BlockEntry]
) -> BlockFooter | None:
    """Return what stands for a damaged newest block; None if its records were not skipped."""
    start = blocks[-1].start_offset
    end = end_after_losses(writer, start, lost_ranges(stream.storage, stream.name))
    if end == start:
        return None
    return BlockFooter(start, end - start, _position_before(stream, writer, blocks[:-1]))


def _position_before(stream: JournalStream, writer: str, blocks: list[BlockEntry]) -> Any:
    """Return the newest position in these blocks, else in the epochs before; None without one.

    A block carries its position on from the one before, so the first footer that can be read
    nearly always has it.
    """
    for name, start in _backwards(stream, writer, blocks):
        try:
            position = stream.footer(name, start).position
        except NewerBlockError:
            raise
        except (DamagedBlockError, NotFoundError):
            continue
        if position is not None:
            return position
    return None


def _backwards(
    stream: JournalStream, writer: str, blocks: list[BlockEntry]
) -> Iterator[tuple[str, int]]:
    """Yield the blocks and seals of a receiver, newest first: these, then earlier epochs'."""
    yield from ((writer, block.start_offset) for block in reversed(blocks))
    if latest := parse_writer(writer):
        for epoch in range(latest.epoch - 1, -1, -1):
            earlier = str(replace(latest, epoch=epoch))
            yield from ((earlier, block.start_offset) for block in stream.blocks(earlier)[::-1])
