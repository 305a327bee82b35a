"""From offset ranges to slices of block files: pure decisions.

A block ends where the next one starts; the end of the newest block in a listing is only in its
footer. So a slice has the expected range of its block, and the reader checks it: if a block is
missing in the middle, the previous one has fewer records than expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from penstock.errors import DamagedBlockError, MissingBlockError
from penstock.journal.block import BlockFooter
from penstock.journal.layout import block_path
from penstock.journal.stream import BlockEntry
from penstock.model import OffsetRange

_TASK_BYTES = 4 << 20
_MOST_TASKS_PER_SLOT = 4
_SMALL_BLOCKS_PER_TASK = 100


@dataclass(frozen=True, slots=True)
class BlockSlice:
    """Records ``[start_offset, end_offset)`` of the block file at ``path``."""

    path: str
    block_start: int
    block_end: int | None
    """The start of the next block; None for the newest block of a listing."""
    size: int
    """Bytes of the whole block file."""
    start_offset: int
    end_offset: int

    @property
    def count(self) -> int:
        """The number of records in the slice."""
        return self.end_offset - self.start_offset

    def is_whole(self, footer: BlockFooter) -> bool:
        """Whether the slice takes all records of its block."""
        return (self.start_offset, self.end_offset) == (footer.start_offset, footer.end_offset)


def slice_range(stream: str, blocks: Sequence[BlockEntry], wanted: OffsetRange) -> list[BlockSlice]:
    """Return the slices of a writer's listed ``blocks`` that make up the ``wanted`` range.

    Raises:
        MissingBlockError: the listing begins after the range, or has no part of it.
    """
    if not wanted.count:
        return []
    starts = [block.start_offset for block in blocks]
    if not starts or starts[0] > wanted.start_offset:
        held = f"begins at {starts[0]}" if starts else "holds no block of this writer"
        hole = replace(wanted, end_offset=min([wanted.end_offset, *starts[:1]]))
        raise _missing(stream, hole, hole, f"it {held}")
    slices = []
    for block, following in zip(blocks, [*starts[1:], None], strict=True):
        end = wanted.end_offset if following is None else min(following, wanted.end_offset)
        start = max(block.start_offset, wanted.start_offset)
        if start < end:
            path = block_path(stream, wanted.partition, block.start_offset)
            slices.append(BlockSlice(path, block.start_offset, following, block.size, start, end))
    return slices


def check_slice(part: BlockSlice, footer: BlockFooter) -> None:
    """Check that a block holds the range that the listing shows.

    Raises:
        MissingBlockError: it ends before the slice does.
        DamagedBlockError: its records do not match its name.
    """
    next_start = footer.end_offset if part.block_end is None else part.block_end
    if footer.start_offset != part.block_start or footer.end_offset > next_start:
        raise DamagedBlockError(
            f"block holds [{footer.start_offset}, {footer.end_offset}), which does not match its "
            f"name",
            operation="read block",
            path=part.path,
            hint="it was renamed or copied by hand: restore the journal from a copy",
        )
    if footer.end_offset < part.end_offset:
        stream, writer, _ = part.path.split("/")
        gap = OffsetRange(writer, max(footer.end_offset, part.start_offset), part.end_offset)
        hole = OffsetRange(writer, footer.end_offset, part.block_end or part.end_offset)
        raise _missing(stream, gap, hole, f"the block before ends at {footer.end_offset}")


def task_count(slices: Iterable[BlockSlice], slots: int) -> int:
    """Return the best number of tasks to read the slices if ``slots`` tasks can run at once.

    One for each slot for little data. Several for each slot for more data, because slots differ: a
    receiver may occupy one, and then equal shares would leave the others idle while the last one is
    read.
    """
    size = sum(part.size for part in slices)
    return max(slots, min(size // _TASK_BYTES, _MOST_TASKS_PER_SLOT * slots))


def small_task_count(slices: Sequence[BlockSlice], slots: int, *, remote: bool) -> int:
    """Return the best number of tasks to read many tiny blocks if ``slots`` tasks can run at once.

    A task with a Python worker costs as much as some hundred local blocks (200 of them took 274 ms
    in three tasks, 186 ms in two). Where each read is a ``remote`` request, waiting costs most.
    """
    if remote:
        return slots
    size = sum(part.size for part in slices)
    return min(slots, max(-(-len(slices) // _SMALL_BLOCKS_PER_TASK), size // _TASK_BYTES))


def pack_slices(slices: Iterable[BlockSlice], max_tasks: int) -> list[list[BlockSlice]]:
    """Distribute slices over at most ``max_tasks`` tasks of about equal records, in order.

    Slices are cut where a task is full, so several tasks share one large block, and many small
    blocks share a task.
    """
    slices = list(slices)
    total = sum(part.count for part in slices)
    share = max(1, -(-total // max(1, max_tasks)))
    tasks: list[list[BlockSlice]] = []
    room = 0
    for whole in slices:
        at = whole.start_offset
        while at < whole.end_offset:
            if room == 0:
                tasks.append([])
                room = share
            end = min(whole.end_offset, at + room)
            is_cut = (at, end) != (whole.start_offset, whole.end_offset)
            tasks[-1].append(replace(whole, start_offset=at, end_offset=end) if is_cut else whole)
            room -= end - at
            at = end
    return tasks


def _missing(stream: str, gap: OffsetRange, hole: OffsetRange, why: str) -> MissingBlockError:
    """Return the error for missing records, with ids that name the whole missing range."""
    return MissingBlockError(
        f"records [{gap.start_offset}, {gap.end_offset}) are not in the journal: {why}",
        operation="read range",
        ids={
            "stream": stream,
            "writer": gap.partition,
            "start": hole.start_offset,
            "end": hole.end_offset,
        },
        hint="run `penstock journal verify` on the journal; nothing was skipped",
    )
