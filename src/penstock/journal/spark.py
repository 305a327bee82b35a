"""Journal ranges as Spark DataFrames and RDDs.

The DataFrame path scans the Parquet blocks natively, so records never pass through Python. Many
tiny blocks are read by Arrow tasks instead, because Spark has a cost for each file (200 blocks of
30 rows: 2.0 s natively, 0.27 s with Arrow). The RDD path reads blocks with pyarrow in the Python
workers, so records never pass through the JVM.

Nothing is skipped silently: the driver verifies every block's footer (its offsets, its count, its
schema) before a native scan, Spark verifies the page checksums, and options that make Spark skip
missing or corrupt files are overridden. The Python paths verify whole blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, reduce
from typing import Any

import pyarrow as pa
from pyspark import RDD, SparkContext
from pyspark.sql import DataFrame, DataFrameReader, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from penstock.journal.gathering import gathered
from penstock.journal.reader import read_slices, slice_footer, slice_ranges
from penstock.journal.record_reader import slice_records
from penstock.journal.scan import StreamScan
from penstock.journal.slices import BlockSlice, pack_slices, small_task_count, task_count
from penstock.journal.spark_types import spark_schema
from penstock.journal.stream import JournalStream
from penstock.model import OffsetRange
from penstock.workers import freeze_imports

_MANY_BLOCKS = 8
_SMALL_BLOCK_BYTES = 256 << 10
_listing_setting = threading.Lock()


def journal_dataframe(
    spark: SparkSession,
    stream: JournalStream,
    ranges: Iterable[OffsetRange],
    scan: StreamScan | None = None,
) -> DataFrame:
    """Return the records of the ranges as a DataFrame with the stream's columns.

    ``scan`` saves requests for its contents.

    Raises:
        MissingBlockError, DamagedBlockError: a block is missing or its footer is damaged. Damage
            within the records fails the Spark job that reads them.
    """
    slices = slice_ranges(stream, ranges, scan)
    schema = spark_schema(stream.format.arrow)
    if not slices:
        return arrow_dataframe(spark, schema, [], _ReadSlices(stream, schema))
    struct = from_arrow_schema(schema)
    mean_size = sum(part.size for part in slices) / len(slices)
    if len(slices) > _MANY_BLOCKS and mean_size < _SMALL_BLOCK_BYTES:
        slots = spark.sparkContext.defaultParallelism
        remote = not stream.storage.url.startswith("file:")
        tasks = pack_slices(slices, small_task_count(slices, slots, remote=remote))
        return arrow_dataframe(spark, schema, tasks, _ReadSlices(stream, schema))
    whole: list[BlockSlice] = []
    parts: list[BlockSlice] = []
    for part in slices:
        footer = slice_footer(stream, part, scan)
        (whole if part.is_whole(footer) else parts).append(part)
    frames = [_scan(spark, stream, struct, whole)] if whole else []
    frames += [_rows(_scan(spark, stream, struct, [part]), part) for part in parts]
    return reduce(DataFrame.union, frames)


def arrow_dataframe(
    spark: SparkSession,
    schema: pa.Schema,
    tasks: Sequence[Any],
    read: Callable[[Any], Iterator[pa.RecordBatch]],
) -> DataFrame:
    """Return as a DataFrame what ``read`` makes of each of ``tasks``, in a Spark task of its own.

    Args:
        spark: runs the tasks.
        schema: of the batches that ``read`` returns.
        tasks: plain values.
        read: must pickle by name.
    """
    struct = from_arrow_schema(schema)
    if not tasks:
        # A table becomes a local relation, which Spark counts or writes without any task.
        return spark.createDataFrame(schema.empty_table(), struct)
    found = spark.range(0, len(tasks), 1, len(tasks))
    return found.mapInArrow(_ReadTasks(tasks, read), struct)


def journal_rdd(
    sc: SparkContext,
    stream: JournalStream,
    ranges: Iterable[OffsetRange],
    scan: StreamScan | None = None,
) -> RDD[Any]:
    """Return the records of the ranges as an RDD of Python values, read when its tasks run.

    ``scan`` saves requests for its contents.

    Raises:
        MissingBlockError: a block is missing. Damage, and a record that cannot be converted to a
            Python value, fail the Spark job that reads them.
    """
    slices = slice_ranges(stream, ranges, scan)
    tasks = pack_slices(slices, task_count(slices, sc.defaultParallelism))
    if not tasks:
        return sc.emptyRDD()
    return empty_partitions(sc, len(tasks)).mapPartitionsWithIndex(_ReadRecords(stream, tasks))


class _ReadRecords:
    """Task: its number to the Python records of its block slices. Pickles by name, as a class."""

    def __init__(self, stream: JournalStream, tasks: list[list[BlockSlice]]) -> None:
        self._stream = stream
        self._tasks = tasks

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[Any]:
        assert not list(nothing)  # a worker whose input was read to its end is used again
        freeze_imports()
        return slice_records(self._stream, self._tasks[number])


class _ReadSlices:
    """Task: block slices to Arrow batches."""

    def __init__(self, stream: JournalStream, schema: pa.Schema) -> None:
        self._stream = stream
        self._schema = schema

    def __call__(self, slices: list[BlockSlice]) -> Iterator[pa.RecordBatch]:
        for batch in gathered(read_slices(self._stream, slices)):
            yield batch.cast(self._schema)


class _ReadTasks:
    """Task: its number to the Arrow batches of what it reads."""

    def __init__(
        self, tasks: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]]
    ) -> None:
        self._tasks = tasks
        self._read = read

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        for numbers in batches:
            for number in numbers.column(0).to_pylist():
                yield from self._read(self._tasks[number])


def _scan(
    spark: SparkSession, stream: JournalStream, struct: StructType, slices: list[BlockSlice]
) -> DataFrame:
    paths = [stream.storage.uri(part.path) for part in slices]
    reader = _reader(spark, struct)
    if len(paths) <= _MANY_BLOCKS:
        return reader.parquet(*paths)
    # Above a threshold of paths Spark lists them in a separate job, which costs seconds; the paths
    # are known, so the driver lists them itself. The setting is read while parquet() runs.
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    with _listing_setting:
        usual = str(spark.conf.get(name))
        spark.conf.set(name, str(max(len(paths), int(usual))))
        try:
            return reader.parquet(*paths)
        finally:
            spark.conf.set(name, usual)


@lru_cache(maxsize=16)
def empty_partitions(sc: SparkContext, count: int) -> RDD[Any]:
    """Return empty partitions, kept: to make an RDD takes eight calls of the JVM and a file."""
    return sc.parallelize([], count)


@lru_cache(maxsize=16)
def _reader(spark: SparkSession, struct: StructType) -> DataFrameReader:
    """Return the reader of blocks with these columns; kept, since each option calls the JVM."""
    return spark.read.schema(struct).options(
        **{
            "ignoreCorruptFiles": "false",
            "ignoreMissingFiles": "false",
            "parquet.page.verify-checksum.enabled": "true",
        }
    )


def _rows(block: DataFrame, part: BlockSlice) -> DataFrame:
    row = block.metadataColumn("_metadata")["row_index"]  # a column may have that name, too
    start, end = part.start_offset - part.block_start, part.end_offset - part.block_start
    return block.where((row >= start) & (row < end))
