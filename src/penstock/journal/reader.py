"""Reading ranges of a stream, as Arrow batches or Python records, verified whole block by block.

Runs in executors too: imports no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.errors import MissingBlockError, NotFoundError
from penstock.journal.block import BlockFooter, read_block, read_footer
from penstock.journal.slices import BlockSlice, check_slice, slice_range
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

__all__ = ["read_batches", "read_records", "read_slices", "slice_footer", "slice_ranges"]


def slice_ranges(stream: JournalStream, ranges: Iterable[OffsetRange]) -> list[BlockSlice]:
    """Return the pieces of blocks that make up the ranges, by listing their writers' folders.

    Raises:
        MissingBlockError: the journal does not hold a range from its start on.
    """
    slices: list[BlockSlice] = []
    for wanted in ranges:
        slices += slice_range(stream.name, stream.blocks(wanted.partition), wanted)
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


def slice_footer(stream: JournalStream, part: BlockSlice) -> BlockFooter:
    """Return the verified footer of a slice's block. Raises as ``read_batches``."""
    with _missing_block(stream, part):
        tail = stream.read_tail(part.path)
    footer = read_footer(tail, stream.storage.uri(part.path))
    check_slice(part, footer)
    return footer


def _read_slice(stream: JournalStream, part: BlockSlice) -> Iterator[pa.RecordBatch]:
    with _missing_block(stream, part):
        data = stream.storage.read(part.path)
    footer, parquet = read_block(data, stream.storage.uri(part.path))
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
def _missing_block(stream: JournalStream, part: BlockSlice) -> Iterator[None]:
    """Say of a block that is gone which records are missed with it."""
    try:
        yield
    except NotFoundError as e:
        raise MissingBlockError(
            f"records [{part.start_offset}, {part.end_offset}) are not in the journal: "
            "their block is gone",
            operation="read range",
            path=stream.storage.uri(part.path),
            ids={"stream": stream.name},
            hint="run `penstock journal verify` on the journal; nothing was skipped",
        ) from e
