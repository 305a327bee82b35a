"""Reading ranges of a stream, as Arrow batches or Python records, verified whole block by block.

Runs in executors too: imports no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.errors import (
    DamagedBlockError,
    MissingBlockError,
    NewerBlockError,
    NotFoundError,
    PenstockError,
)
from penstock.journal.block import BlockFooter, read_block, read_footer
from penstock.journal.losses.loss_log import lost_ranges, say_left_out, skip_commands, without_lost
from penstock.journal.scan import StreamScan
from penstock.journal.slices import BlockSlice, check_slice, slice_range
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

__all__ = [
    "read_batches",
    "read_records",
    "read_slices",
    "readable_ranges",
    "slice_footer",
    "slice_ranges",
    "with_command",
]

_RESTORE = "restore the blocks from a copy (`penstock journal verify` finds all that is damaged)"


def readable_ranges(
    stream: JournalStream, ranges: Iterable[OffsetRange], scan: StreamScan | None = None
) -> list[OffsetRange]:
    """Return the ranges without what was given up; says so in the log, once.

    What that is stands in ``scan``; without one it is listed.
    """
    lost = scan.lost if scan else lost_ranges(stream.storage, stream.name)
    readable: list[OffsetRange] = []
    for wanted in ranges:
        left = without_lost([wanted], lost)
        say_left_out(stream.storage, stream.name, wanted, sum(part.count for part in left))
        readable += left
    return readable


def slice_ranges(
    stream: JournalStream, ranges: Iterable[OffsetRange], scan: StreamScan | None = None
) -> list[BlockSlice]:
    """Return the pieces of blocks that make up the ranges, by listing their writers' folders.

    What was given up is left out. Writers that ``scan`` has are not listed again.

    Raises:
        MissingBlockError: the journal does not hold a range from its start on.
    """
    slices: list[BlockSlice] = []
    for wanted in readable_ranges(stream, ranges, scan):
        blocks = scan.blocks(wanted) if scan else None
        try:
            slices += slice_range(
                stream.name, stream.blocks(wanted.partition) if blocks is None else blocks, wanted
            )
        except MissingBlockError as e:
            raise with_command(stream, e) from None
    return slices


def read_batches(stream: JournalStream, ranges: Iterable[OffsetRange]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges, in order, as batches of the stream's schema.

    Raises:
        MissingBlockError: a range is not (wholly) in the journal.
        DamagedBlockError: a block that it needs is damaged; records before it were yielded.
    """
    return read_slices(stream, slice_ranges(stream, ranges))


def read_records(stream: JournalStream, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
    """Return the records of the ranges, in order, as Python values. Raises as ``read_batches``."""
    return chain.from_iterable(map(stream.format.to_python, read_batches(stream, ranges)))


def read_slices(stream: JournalStream, slices: Iterable[BlockSlice]) -> Iterator[pa.RecordBatch]:
    """Yield the records of block slices. Raises as ``read_batches``."""
    for part in slices:
        yield from _read_slice(stream, part)


def slice_footer(
    stream: JournalStream, part: BlockSlice, scan: StreamScan | None = None
) -> BlockFooter:
    """Return the verified footer of a slice's block, read unless ``scan`` has it.

    Raises as ``read_batches``.
    """
    _, writer, _ = part.path.split("/")
    with _explained(stream, part):
        footer = scan.footer(writer, part.block_start) if scan else None
        if footer is None:
            tail = stream.read_tail(part.path, part.size)
            footer = read_footer(tail, stream.storage.uri(part.path))
        check_slice(part, footer)
    return footer


def _read_slice(stream: JournalStream, part: BlockSlice) -> Iterator[pa.RecordBatch]:
    with _explained(stream, part):
        footer, parquet = read_block(stream.storage.read(part.path), stream.storage.uri(part.path))
        check_slice(part, footer)
    at = footer.start_offset
    for group in range(parquet.num_row_groups):
        rows = parquet.metadata.row_group(group).num_rows
        start, end = max(part.start_offset, at), min(part.end_offset, at + rows)
        if start < end:
            table = parquet.read_row_group(group, use_threads=False).cast(stream.format.arrow)
            yield from table.slice(start - at, end - start).to_batches()
        at += rows


@contextmanager
def _explained(stream: JournalStream, part: BlockSlice) -> Iterator[None]:
    """Say of a block that cannot be read which records are missed with it, and the way out."""
    try:
        yield
    except NewerBlockError:
        raise
    except NotFoundError as e:
        raise _gone(stream, part) from e
    except DamagedBlockError as e:
        _, writer, _ = part.path.split("/")
        end = part.block_end or _end_of_damaged(stream, part)
        e.ids |= {"stream": stream.name, "writer": writer, "start": part.block_start, "end": end}
        raise with_command(stream, e) from e.__cause__
    except MissingBlockError as e:
        raise with_command(stream, e) from None


def _gone(stream: JournalStream, part: BlockSlice) -> PenstockError:
    _, writer, _ = part.path.split("/")
    end = part.block_end or part.end_offset
    error = MissingBlockError(
        f"records [{part.start_offset}, {part.end_offset}) are not in the journal: "
        "their block is gone",
        operation="read range",
        path=stream.storage.uri(part.path),
        ids={"stream": stream.name, "writer": writer, "start": part.block_start, "end": end},
    )
    return with_command(stream, error)


def _end_of_damaged(stream: JournalStream, part: BlockSlice) -> int:
    """Return where a writer's newest block ends: as its footer says, else as far as is known."""
    try:
        return read_footer(stream.read_tail(part.path), part.path).end_offset
    except PenstockError:
        return part.end_offset


def with_command(
    stream: JournalStream, error: PenstockError, restore: str = _RESTORE
) -> PenstockError:
    """Give an error with the ids of the records the hint that fixes it; ``restore`` comes first."""
    records = OffsetRange(error.ids["writer"], error.ids["start"], error.ids["end"])
    left = without_lost([records], lost_ranges(stream.storage, stream.name))
    commands = skip_commands(stream.storage, stream.name, left)
    error.hint = f"nothing was skipped; {restore}, or give records up: {commands}"
    return error
