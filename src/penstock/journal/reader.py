"""Reading ranges of a stream, as Arrow batches, verified whole block by block.

Runs in executors too: imports no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from penstock.errors import MissingBlockError
from penstock.journal.block import BlockFooter, read_block
from penstock.journal.losses.loss_log import lost_ranges, say_left_out, without_lost
from penstock.journal.losses.way_out import explained, with_command
from penstock.journal.scan import StreamScan
from penstock.journal.slices import BlockSlice, check_slice, slice_range
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange


def readable_ranges(
    stream: JournalStream, ranges: Iterable[OffsetRange], scan: StreamScan | None = None
) -> list[OffsetRange]:
    """Return the ranges without skipped records; logs this once.

    The skipped ranges are taken from ``scan``; without one they are listed.
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
    """Return the slices of blocks that make up the ranges, by listing their writers' folders.

    Skipped records are left out. Writers that ``scan`` has are not listed again.

    Raises:
        MissingBlockError: the journal does not have a range from its start.
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
        MissingBlockError: a range is not (completely) in the journal.
        DamagedBlockError: a block that it needs is damaged; records before it were yielded.
    """
    return read_slices(stream, slice_ranges(stream, ranges))


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
    with explained(stream, part):
        footer = scan.footer(writer, part.block_start) if scan else None
        if footer is None:
            footer = stream.footer(writer, part.block_start, part.size)
        check_slice(part, footer)
    return footer


def _read_slice(stream: JournalStream, part: BlockSlice) -> Iterator[pa.RecordBatch]:
    with explained(stream, part):
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
