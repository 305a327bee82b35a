"""Journal ranges on Spark: whatever way is taken, the same records, or a loud failure."""

from __future__ import annotations

import datetime as dt
import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from penstock.errors import DamagedBlockError, MissingBlockError
from penstock.journal import JournalStream, JournalWriter, RecordFormat
from penstock.journal import spark as journal_spark
from penstock.journal.layout import WriterId
from penstock.journal.spark import journal_dataframe, journal_rdd
from penstock.model import OffsetRange
from penstock.storage import Storage
from penstock.workers import freeze_imports
from tests.journal.helpers import path_of, rewrite, whole_range, write_blocks
from tests.journal.test_schema import TYPES

pytestmark = pytest.mark.spark

SIZES = [3, 50, 1, 7]
FAILED_JOB = (Py4JJavaError, PySparkException)


def lines(sizes: list[int], name: str = "line") -> list[list[str]]:
    number = iter(range(sum(sizes)))
    return [[f"{name} {next(number)}" for _ in range(size)] for size in sizes]


def values(frame: DataFrame) -> Counter[Any]:
    return Counter(row[0] for row in frame.collect())


def uses_python(frame: DataFrame) -> bool:
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert ("MapInArrow" in plan) != ("FileScan parquet" in plan)
    return "MapInArrow" in plan


RANGES = {
    "all": (0, 61),
    "whole blocks": (3, 54),
    "within the first block": (1, 2),
    "partial first": (2, 54),
    "partial last": (3, 60),
    "partial first and last": (10, 58),
    "within one block": (20, 30),
    "one record": (53, 54),
    "nothing": (7, 7),
}


@pytest.mark.parametrize("case", RANGES)
def test_ranges(spark: SparkSession, sc: SparkContext, stream: JournalStream, case: str) -> None:
    start, end = RANGES[case]
    writer = write_blocks(stream, lines(SIZES))
    wanted = OffsetRange(str(writer), start, end)
    expected = [line for block in lines(SIZES) for line in block][start:end]
    frame = journal_dataframe(spark, stream, [wanted])
    assert frame.columns == ["value"]
    assert values(frame) == Counter(expected)
    assert frame.count() == end - start
    assert journal_rdd(sc, stream, [wanted]).collect() == expected


def test_several_writers(spark: SparkSession, sc: SparkContext, stream: JournalStream) -> None:
    writers = [write_blocks(stream, lines(SIZES, name), receiver=name) for name in "abc"]
    ranges = [OffsetRange(str(writer), n, 60 - n) for n, writer in enumerate(writers)]
    expected = [
        line
        for n, name in enumerate("abc")
        for line in [line for block in lines(SIZES, name) for line in block][n : 60 - n]
    ]
    assert values(journal_dataframe(spark, stream, ranges)) == Counter(expected)
    assert journal_rdd(sc, stream, ranges).collect() == expected


def test_many_tiny_blocks_share_tasks(
    spark: SparkSession, sc: SparkContext, stream: JournalStream
) -> None:
    blocks = lines([2] * 200)
    writer = write_blocks(stream, blocks)
    wanted = OffsetRange(str(writer), 1, 399)
    expected = [line for block in blocks for line in block][1:399]
    frame = journal_dataframe(spark, stream, [wanted])
    assert uses_python(frame)
    assert frame.rdd.getNumPartitions() <= sc.defaultParallelism
    assert values(frame) == Counter(expected)
    rdd = journal_rdd(sc, stream, [wanted])
    assert rdd.getNumPartitions() == sc.defaultParallelism
    assert rdd.collect() == expected


def test_a_large_block_is_shared_by_several_tasks(
    spark: SparkSession, sc: SparkContext, stream: JournalStream
) -> None:
    records = [f"{number:01000d}" for number in range(20_000)]
    writer = write_blocks(stream, [records])
    wanted = OffsetRange(str(writer), 100, 19_999)
    frame = journal_dataframe(spark, stream, [wanted])
    assert not uses_python(frame)
    assert values(frame) == Counter(records[100:19_999])
    rdd = journal_rdd(sc, stream, [wanted])
    assert rdd.glom().map(len).collect() == [4975, 4975, 4975, 4974]  # 4 MB each, 2 slots
    assert rdd.collect() == records[100:19_999]


def test_many_large_blocks_are_scanned_without_a_listing_job(
    spark: SparkSession, stream: JournalStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_spark, "_SMALL_BLOCK_BYTES", 0)
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    usual = spark.conf.get(name)
    writer = write_blocks(stream, lines([1] * 40))
    spark.sparkContext.setJobGroup("listing", "listing")
    try:
        frame = journal_dataframe(spark, stream, [whole_range(stream, writer)])
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup("listing")
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert not uses_python(frame)
    assert list(jobs) == []
    assert frame.count() == 40
    assert spark.conf.get(name) == usual


@pytest.mark.parametrize("name", ["_metadata", "_METADATA", "row_index", "", "a.b", "c`d"])
def test_part_of_a_block_whatever_a_column_is_called(
    spark: SparkSession, storage: Storage, name: str
) -> None:
    schema = pa.schema([(name, pa.int64())])
    stream = JournalStream.create(storage, "named", RecordFormat(schema))
    writer = write_blocks(stream, [[{name: number} for number in range(9)]])
    frame = journal_dataframe(spark, stream, [OffsetRange(str(writer), 2, 5)])
    assert values(frame) == Counter([2, 3, 4])


@pytest.mark.parametrize("name", TYPES)
def test_both_ways_read_every_type_alike(
    spark: SparkSession, storage: Storage, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    column, value = TYPES[name]
    stream = JournalStream.create(storage, "typed", RecordFormat(pa.schema([("c", column)])))
    writer = write_blocks(stream, [[{"c": value}, {"c": None}]])
    wanted = [whole_range(stream, writer)]
    natively = journal_dataframe(spark, stream, wanted)
    monkeypatch.setattr(journal_spark, "_MANY_BLOCKS", 0)
    by_arrow = journal_dataframe(spark, stream, wanted)
    nothing = journal_dataframe(spark, stream, [])
    assert not uses_python(natively)
    assert uses_python(by_arrow)
    assert natively.schema == by_arrow.schema == nothing.schema
    found = natively.collect()
    assert found == by_arrow.collect()
    assert found[1] == Row(c=None)
    assert nothing.collect() == []
    if name not in ("map", "timestamp_zone", "struct"):  # Spark shows these its own way
        assert found[0] == Row(c=value)


def test_rows_of_columns(spark: SparkSession, sc: SparkContext, storage: Storage) -> None:
    schema = pa.schema([("n", pa.int64()), ("at", pa.timestamp("us", "UTC")), ("tag", "string")])
    stream = JournalStream.create(storage, "rows", RecordFormat(schema))
    at = dt.datetime(2024, 5, 1, tzinfo=dt.timezone.utc)
    rows = [{"n": n, "at": at, "tag": None if n % 2 else str(n)} for n in range(10)]
    writer = write_blocks(stream, [rows[:4], rows[4:]])
    wanted = [OffsetRange(str(writer), 3, 9)]
    frame = journal_dataframe(spark, stream, wanted)
    assert [row.n for row in frame.where("tag is not null").orderBy("n").collect()] == [4, 6, 8]
    assert journal_rdd(sc, stream, wanted).collect() == rows[3:9]


@pytest.mark.parametrize("kind", ["binary", "pickle"])
def test_other_kinds_of_records(sc: SparkContext, storage: Storage, kind: str) -> None:
    stream = JournalStream.create(storage, kind, RecordFormat(kind))
    records: list[Any] = [b"\xff", b""] if kind == "binary" else [{"a": (1, 2)}, None]
    writer = write_blocks(stream, [records])
    assert journal_rdd(sc, stream, [whole_range(stream, writer)]).collect() == records


def test_bytes_as_a_dataframe(spark: SparkSession, storage: Storage) -> None:
    stream = JournalStream.create(storage, "bytes", RecordFormat("binary"))
    writer = write_blocks(stream, [[b"\xff", b""]])
    frame = journal_dataframe(spark, stream, [whole_range(stream, writer)])
    assert {bytes(row.value) for row in frame.collect()} == {b"\xff", b""}


# -- damage --


def data_length(data: bytes) -> int:
    return len(data) - int.from_bytes(data[-8:-4], "little") - 8


@pytest.fixture
def skipping(spark: SparkSession) -> Any:
    """A session of somebody who has told Spark to skip what it cannot read."""
    names = ["spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"]
    for name in names:
        spark.conf.set(name, "true")
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()
    hadoop.set("parquet.page.verify-checksum.enabled", "false")
    yield spark
    hadoop.unset("parquet.page.verify-checksum.enabled")
    for name in names:
        spark.conf.unset(name)


@pytest.mark.storm
@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_flipped_byte_never_passes_the_native_scan(
    skipping: SparkSession, stream: JournalStream, storage: Storage, compression: str
) -> None:
    records = [f"a line {number}" for number in range(9)]
    writer = write_blocks(stream, [records], compression=compression)
    path = path_of(stream, writer, 0)
    sound = storage.read(path)
    failed = 0
    end = data_length(sound)
    # Every byte of the page's header (it is within the first 40), and the data in steps.
    for at in [*range(4, 40), *range(40, end, 7), end - 1]:
        damaged = bytearray(sound)
        damaged[at] ^= 0x10
        rewrite(storage, path, bytes(damaged))
        try:
            found = values(journal_dataframe(skipping, stream, [whole_range(stream, writer)]))
        except FAILED_JOB:
            failed += 1
        else:
            # Some bits of a header have no meaning here, as the kind of levels that are not there.
            assert found == Counter(records), at
            assert at < 40
    assert failed > 30


@pytest.mark.parametrize("way", ["natively", "by arrow", "as rdd"])
def test_damage_fails_the_job(
    skipping: SparkSession,
    sc: SparkContext,
    stream: JournalStream,
    storage: Storage,
    way: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = write_blocks(stream, lines([100, 100]))
    wanted = [whole_range(stream, writer)]
    path = path_of(stream, writer, 100)
    damaged = bytearray(storage.read(path))
    damaged[200] ^= 1
    rewrite(storage, path, bytes(damaged))
    monkeypatch.setattr(journal_spark, "_MANY_BLOCKS", 0 if way == "by arrow" else 99)
    frame = journal_dataframe(skipping, stream, wanted)
    assert uses_python(frame) == (way == "by arrow")
    job: Any = journal_rdd(sc, stream, wanted).count if way == "as rdd" else frame.collect
    with pytest.raises(FAILED_JOB) as caught:
        job()
    assert "00000000000000000100.parquet" in str(caught.value)
    if way != "natively":
        assert "penstock journal verify" in str(caught.value)


def test_a_damaged_footer_is_found_before_the_job(
    skipping: SparkSession, stream: JournalStream, storage: Storage
) -> None:
    writer = write_blocks(stream, lines([5, 5]))
    wanted = [whole_range(stream, writer)]
    path = path_of(stream, writer, 0)
    data = storage.read(path)
    rewrite(storage, path, data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    with pytest.raises(DamagedBlockError):
        journal_dataframe(skipping, stream, wanted)


@pytest.mark.parametrize("blocks", [3, 20])
@pytest.mark.parametrize("missing", ["first", "middle", "last"])
def test_a_missing_block_fails(
    skipping: SparkSession, sc: SparkContext, stream: JournalStream, blocks: int, missing: str
) -> None:
    writer = write_blocks(stream, lines([2] * blocks), close=False)
    wanted = [whole_range(stream, writer)]
    place = {"first": 0, "middle": blocks // 2, "last": blocks - 1}[missing]
    stream.storage.delete(path_of(stream, writer, place * 2))
    with pytest.raises((MissingBlockError, *FAILED_JOB)) as caught:
        journal_dataframe(skipping, stream, wanted).collect()
    assert "are not in the journal" in str(caught.value)
    with pytest.raises((MissingBlockError, *FAILED_JOB)) as caught:
        journal_rdd(sc, stream, wanted).collect()
    assert "are not in the journal" in str(caught.value)


def test_a_block_that_goes_after_planning_fails_the_job(
    skipping: SparkSession, sc: SparkContext, stream: JournalStream
) -> None:
    writer = write_blocks(stream, lines([20, 20]))
    wanted = [whole_range(stream, writer)]
    frame = journal_dataframe(skipping, stream, wanted)
    rdd = journal_rdd(sc, stream, wanted)
    stream.storage.delete(path_of(stream, writer, 20))
    with pytest.raises(FAILED_JOB):
        frame.collect()
    with pytest.raises(FAILED_JOB, match="their block is missing"):
        rdd.collect()


def test_a_range_beyond_the_end_fails(spark: SparkSession, stream: JournalStream) -> None:
    writer: WriterId = write_blocks(stream, lines([5]), close=False)
    with pytest.raises(MissingBlockError):
        journal_dataframe(spark, stream, [OffsetRange(str(writer), 0, 6)])


def test_a_batch_reads_while_the_writer_goes_on(spark: SparkSession, stream: JournalStream) -> None:
    writer = JournalWriter(stream, "r0")
    writer.append_all(["a", "b"])
    writer.flush()
    frame = journal_dataframe(spark, stream, [OffsetRange(str(writer.id), 0, 2)])
    writer.append_all(["c"])
    writer.close()
    assert values(frame) == Counter(["a", "b"])


def test_a_worker_collects_no_imports(sc: SparkContext, stream: JournalStream) -> None:
    def frozen(records: Iterable[Any]) -> Iterator[int]:
        list(records)
        yield gc.get_freeze_count()

    writer = write_blocks(stream, lines([3]))
    rdd = journal_rdd(sc, stream, [whole_range(stream, writer)])
    assert min(rdd.mapPartitions(frozen).collect()) > 10_000
    before = gc.get_freeze_count()  # some hundreds with Python 3.12
    freeze_imports()
    assert gc.get_freeze_count() == before < 10_000  # this is the driver
