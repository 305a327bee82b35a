"""Records of block slices as Python values, and those that cannot be converted.

Runs in executors too: imports no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import pyarrow as pa

from penstock.errors import UnreadableRecordError
from penstock.journal.reader import read_slices, slice_ranges
from penstock.journal.slices import BlockSlice
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

_PIECE_ROWS = 4096


def read_records(stream: JournalStream, ranges: Iterable[OffsetRange]) -> Iterator[Any]:
    """Return the records of the ranges, in order, as Python values.

    Raises as ``reader.read_batches``, and:
        ConfigError: they are pickles, and may not be unpickled.
        UnreadableRecordError: a record cannot be converted to a Python value.
    """
    return slice_records(stream, slice_ranges(stream, ranges))


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
    for batch in read_slices(stream, [part]):
        for start in range(0, batch.num_rows, _PIECE_ROWS):
            yield offset + start, batch.slice(start, _PIECE_ROWS)
        offset += batch.num_rows


def _record_lists(stream: JournalStream, slices: Iterable[BlockSlice]) -> Iterator[list[Any]]:
    for part in slices:
        for offset, piece in numbered_pieces(stream, part):
            try:
                records = stream.format.to_python(piece)
            except UnreadableRecordError as error:
                _locate(stream, part, offset + error.ids.pop("row"), error)
                raise
            yield records


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
    error.hint = "foreachBatch can read it, and parse makes a bad record of it"
