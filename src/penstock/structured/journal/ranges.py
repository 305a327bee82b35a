"""The native lane: the stream carries offset ranges, and ``scan`` reads their blocks.

Records of a Python data source pass through a Python worker. In ``foreachBatch`` they need not:
with ``option("content", "ranges")`` a batch has one row for each writer, and ``scan`` makes of them
the DataFrame over the blocks that DStream programs have (penstock.journal.spark).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import LongType, StringType, StructField, StructType

from penstock.errors import ConfigError
from penstock.journal.existing import open_existing
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange

_NAMES = ("writer", "start_offset", "end_offset", "ranges")
"""``ranges`` is how many the batch has, by which ``scan`` sees that some are gone."""
_TYPES = (pa.string(), pa.int64(), pa.int64(), pa.int64())
_KEY = "penstock"


class RangePartition(InputPartition):
    """The ranges of a batch, in one task."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__([(each.partition, each.start_offset, each.end_offset) for each in ranges])


class RangeReader:
    """Reads that task. Runs in executors."""

    def __call__(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows."""
        rows = [(*each, len(partition.value)) for each in partition.value]
        values = zip(zip(*rows, strict=True), _TYPES, strict=True)
        yield pa.record_batch([pa.array(each, kind) for each, kind in values], names=_NAMES)


def range_schema(stream: JournalStream) -> StructType:
    """Return the columns of ranges; their metadata says of which stream."""
    of = {_KEY: {"journal": stream.storage.url, "stream": stream.name}}
    types = (StringType(), LongType(), LongType(), LongType())
    fields = zip(_NAMES, types, strict=True)
    return StructType([StructField(name, kind, metadata=of) for name, kind in fields])


def scan(batch: DataFrame) -> DataFrame:
    """Return the records of a batch of ranges, read natively from their blocks.

    Args:
        batch: what ``foreachBatch`` is called with, of a stream with ``option("content",
            "ranges")`` and nothing in between.

    Raises:
        ConfigError: it is not such a batch, or not all of one.
        MissingBlockError, DamagedBlockError: see penstock.journal.spark.journal_dataframe.
    """
    from penstock.journal.spark import journal_dataframe  # executors need no DataFrames

    of = batch.schema[0].metadata.get(_KEY)
    if tuple(batch.columns) != _NAMES or of is None:
        raise ConfigError(
            f"the batch has columns {', '.join(batch.columns)}, not a stream's ranges",
            operation="scan batch",
            hint='call scan() first in foreachBatch, on readStream.format("penstock") with '
            '.option("content", "ranges")',
        )
    rows = batch.collect()
    if not rows or len(rows) != rows[0][3]:
        some = f"{len(rows)} of its {rows[0][3]}" if rows else "none of its"
        raise ConfigError(
            f"the batch has {some} ranges: records would be left out",
            operation="scan batch",
            hint="call scan() on the batch as foreachBatch gets it; filter and limit what it "
            "returns",
        )
    stream = open_existing(of["journal"], of["stream"], False)
    ranges = [OffsetRange(row[0], row[1], row[2]) for row in rows]
    return journal_dataframe(batch.sparkSession, stream, ranges)
