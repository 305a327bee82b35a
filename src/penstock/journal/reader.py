"""Reads ranges of a stream as Arrow batches or Python records; verifies whole blocks.

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
    UnreadableRecordError,
)
from penstock.journal.block import BlockFooter, read_block, read_footer
from penstock.journal.losses.loss_log import lost_ranges, say_left_out, skip_commands, without_lost
from penstock.journal.scan import StreamScan
from penstock.journal.slices import BlockSlice, check_slice, slice_range
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

__all__ = [
    "numbered_pieces",
    "read_batches",
    "read_records",
    "read_slices",
    "readable_ranges",
    "slice_footer",
    "slice_ranges",
    "slice_records",
    "unreadable_records",
    "with_command",
]

_PIECE_ROWS = 4096
_MOST_COMMANDS = 8
_RESTORE = "restore the blocks from a copy (`penstock journal verify` finds all that is damaged)"


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


def read_records(stream: JournalStream, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
    """Return the records of the ranges, in order, as Python values.

    Raises as ``read_batches``, and:
        ConfigError: they are pickles, and may not be unpickled. UnreadableRecordError: a record
        cannot be converted to a Python value.
    """
    return slice_records(stream, slice_ranges(stream, ranges))


def read_slices(stream: JournalStream, slices: Iterable[BlockSlice]) -> Iterator[pa.RecordBatch]:
    """Yield the records of block slices. Raises as ``read_batches``."""
    for part in slices:
        yield from _read_slice(stream, part)


def slice_records(stream: JournalStream, slices: Iterable[BlockSlice]) -> Iterator[Any]:
    """Return the records of block slices as Python values. Raises as ``read_records``."""
    # Chained lists: a generator would run Python code for each record.
    return chain.from_iterable(_record_lists(stream, slices))


def numbered_pieces(
    stream: JournalStream, part: BlockSlice
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the records of a block slice with the offset of the first, some thousand at a time.

    As Python values, a piece is small enough that the next one reuses its memory. Raises as
    ``read_batches``.
    """
    offset = part.start_offset
    for batch in _read_slice(stream, part):
        for start in range(0, batch.num_rows, _PIECE_ROWS):
            yield offset + start, batch.slice(start, _PIECE_ROWS)
        offset += batch.num_rows


def unreadable_records(stream: JournalStream, part: BlockSlice) -> list[OffsetRange]:
    """Return the undamaged records of a slice that cannot be converted to Python values, in order.

    Pickles are not tried, as that would run code. Raises as ``read_batches``.
    """
    found: list[OffsetRange] = []
    if stream.format.kind == "pickle":
        return found
    writer = part.path.split("/")[1]
    for offset, piece in numbered_pieces(stream, part):
        if _is_readable(stream, piece):
            continue
        for row in range(piece.num_rows):
            if not _is_readable(stream, piece.slice(row, 1)):
                at = offset + row
                if found and found[-1].end_offset == at:
                    at = found.pop().start_offset
                found.append(OffsetRange(writer, at, offset + row + 1))
    return found


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


def _record_lists(stream: JournalStream, slices: Iterable[BlockSlice]) -> Iterator[list[Any]]:
    for part in slices:
        for offset, piece in numbered_pieces(stream, part):
            try:
                records = stream.format.to_python(piece)
            except UnreadableRecordError as error:
                _locate(stream, part, offset + error.ids.pop("row"), error)
                raise
            yield records


def _is_readable(stream: JournalStream, batch: pa.RecordBatch) -> bool:
    try:
        stream.format.to_python(batch)
    except UnreadableRecordError:
        return False
    return True


def _locate(
    stream: JournalStream, part: BlockSlice, offset: int, error: UnreadableRecordError
) -> None:
    """Add the location of the record and the hint to an error."""
    error.path = stream.storage.uri(part.path)
    writer = part.path.split("/")[1]
    error.ids |= {"stream": stream.name, "writer": writer, "offset": offset}
    if stream.format.kind == "pickle":
        error.hint = "make its class importable again, or read the stream with parse"
        return
    unreadable = unreadable_records(stream, part)[:_MOST_COMMANDS]
    commands = skip_commands(stream.storage, stream.name, unreadable)
    error.hint = (
        "nothing was skipped; foreachBatch can read it, parse makes a bad record of it, or skip "
        "what "
        f"cannot be read: {commands}"
    )


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
    """Add the records of an unreadable block and the hint to its error."""
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
        "their block is missing",
        operation="read range",
        path=stream.storage.uri(part.path),
        ids={"stream": stream.name, "writer": writer, "start": part.block_start, "end": end},
    )
    return with_command(stream, error)


def _end_of_damaged(stream: JournalStream, part: BlockSlice) -> int:
    """Return the end of a writer's newest block: from its footer, otherwise the known minimum."""
    try:
        return read_footer(stream.read_tail(part.path), part.path).end_offset
    except PenstockError:
        return part.end_offset


def with_command(
    stream: JournalStream, error: PenstockError, restore: str = _RESTORE
) -> PenstockError:
    """Add the hint with the fix to an error with the ids of the records."""
    records = OffsetRange(error.ids["writer"], error.ids["start"], error.ids["end"])
    left = without_lost([records], lost_ranges(stream.storage, stream.name))
    commands = skip_commands(stream.storage, stream.name, left)
    error.hint = f"nothing was skipped; {restore}, or skip the records: {commands}"
    return error
