"""spark.readStream.format("penstock"): what a query reads, across restarts, and what is kept."""

from __future__ import annotations

import json
import os
import re
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from penstock.errors import ConfigError
from penstock.journal import JournalStream, RecordFormat, consumers
from penstock.journal.retention.consumer_files import read_consumer
from penstock.storage import open_storage
from penstock.structured import register, scan
from tests.journal.helpers import path_of, write_blocks
from tests.structured.queries import Query

pytestmark = pytest.mark.spark


def test_it_reads_each_record_once_across_restarts(query: Query) -> None:
    write_blocks(query.stream, [["a", "b"], ["c"]])
    assert query.drain() == [["a", "b", "c"]]
    assert query.drain() == []
    write_blocks(query.stream, [["d"]])
    write_blocks(query.stream, [["e"]], receiver="r1")
    assert query.drain() == [["d", "e"]]
    assert query.ids == [0, 1]


def test_a_session_that_was_made_of_another_reads_too(query: Query, tmp_path: Path) -> None:
    query.frame()
    write_blocks(query.stream, [["a", "b"]])
    other = Query(query.spark.newSession(), query.stream, tmp_path / "other")
    assert other.drain() == [["a", "b"]]
    assert other.drain() == []


def test_the_offsets_are_those_of_dstreams(query: Query, tmp_path: Path) -> None:
    write_blocks(query.stream, [["a", "b"]], close=False)
    query.drain()
    lines = (tmp_path / "checkpoint" / "offsets" / "0").read_text().splitlines()
    assert json.loads(lines[-1]) == {"clicks": {"r0-00000000": 2}}


def test_a_limit_makes_several_batches(query: Query) -> None:
    write_blocks(query.stream, [["a", "b"], ["c", "d", "e"]])
    query.options["maxOffsetsPerTrigger"] = "2"
    assert query.drain() == [["a", "b"], ["c", "d"], ["e"]]


def test_commits_drive_retention_behind_the_batches_that_may_be_read_again(
    query: Query, stream: JournalStream
) -> None:
    writer = write_blocks(stream, [["a"], ["b"], ["c"]], close=False)
    query.options["maxOffsetsPerTrigger"] = "1"
    query.drain()
    assert consumers(stream)["report"] == {str(writer): 3}
    entry = read_consumer(stream, "report")
    assert entry is not None
    assert entry.retained == {str(writer): 0}
    assert len(stream.blocks(writer)) == 3
    assert entry.program is not None
    assert entry.program.location.endswith(str(query.location))


def test_two_queries_each_commit_at_their_own_pace(query: Query, tmp_path: Path) -> None:
    writer = write_blocks(query.stream, [["a"], ["b"]], close=False)
    other = Query(query.spark, query.stream, tmp_path / "other", {"consumer": "other"})
    assert other.drain() == [["a", "b"]]
    query.options["maxOffsetsPerTrigger"] = "1"
    assert query.drain() == [["a"], ["b"]]
    assert consumers(query.stream) == {"report": {str(writer): 2}, "other": {str(writer): 2}}


def test_once_takes_all_there_is_whatever_the_limit(query: Query) -> None:
    write_blocks(query.stream, [["a", "b", "c"]])
    query.options["maxOffsetsPerTrigger"] = "1"
    assert query.drain(once=True) == [["a", "b", "c"]]


def test_a_running_query_takes_what_comes(query: Query) -> None:
    running = query.start("50 milliseconds")
    try:
        for number in range(3):
            write_blocks(query.stream, [[str(number)]])
            running.processAllAvailable()
    finally:
        running.stop()
    assert query.seen == [["0"], ["1"], ["2"]]


def test_columns_and_types_are_the_streams_and_a_schema_chooses_some(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("at", pa.timestamp("ms", "UTC")), ("tag", pa.string())]
    )
    stream = JournalStream.create(open_storage(tmp_path / "j"), "rows", RecordFormat(schema))
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    rows = [{"id": 1, "at": when, "tag": "x"}, {"id": 2, "at": None, "tag": None}]
    write_blocks(stream, [rows])
    query = Query(spark, stream, tmp_path / "checkpoint")
    assert query.frame().dtypes == [("id", "bigint"), ("at", "timestamp"), ("tag", "string")]
    found = read(stream, spark)
    assert found.orderBy("id").collect()[0]["at"].astimezone(timezone.utc) == when
    chosen = read(stream, spark, columns="tag STRING, id BIGINT")
    assert sorted(map(tuple, chosen.collect()), key=str) == [("x", 1), (None, 2)]
    with pytest.raises(Exception, match="column 'id' as string"):
        read(stream, spark, columns="id STRING").collect()


def test_an_instant_is_event_time_whatever_the_sessions_time_zone(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = "at timestamp[us, UTC] not null, wall timestamp[ms]"
    stream = JournalStream.create(open_storage(tmp_path / "j"), "rows", RecordFormat(schema))
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    write_blocks(stream, [[{"at": when, "wall": when.replace(tzinfo=None)}]])
    name, usual = "spark.sql.session.timeZone", spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set(name, "Europe/Berlin")
    try:
        found = read(stream, spark).selectExpr(
            "CAST(CAST(at AS TIMESTAMP) AS LONG) AS at",
            "CAST(CAST(wall AS TIMESTAMP) AS LONG) AS wall",
            "CAST(to_timestamp(concat(string(wall), 'Z')) AS LONG) AS named",
        )
        seconds = int(when.timestamp())
        assert tuple(found.collect()[0]) == (seconds, seconds - 3600, seconds)  # as http.md warns
        frame = Query(spark, stream, tmp_path / "checkpoint").frame()
        assert frame.withWatermark("at", "1 minute").isStreaming
        with pytest.raises(AnalysisException, match="TIMESTAMP"):
            frame.withWatermark("wall", "1 minute").schema  # noqa: B018 (Spark checks it here)
    finally:
        spark.conf.set(name, usual)


def test_any_range_is_read_at_once(stream: JournalStream, spark: SparkSession) -> None:
    writer = str(write_blocks(stream, [["a", "b"], ["c"], ["d"]]))
    assert values(read(stream, spark)) == ["a", "b", "c", "d"]
    middle = {"starting": json.dumps({"clicks": {writer: 1}})}
    middle["ending"] = json.dumps({"clicks": {writer: 3}})
    assert values(read(stream, spark, **middle)) == ["b", "c"]
    assert values(read(stream, spark, starting="latest")) == []


def test_a_range_is_read_by_the_times_of_its_blocks(
    stream: JournalStream, spark: SparkSession, tmp_path: Path
) -> None:
    writer = write_blocks(stream, [["a"], ["b"], ["c"]])
    for number in range(3):
        block = tmp_path / "j" / path_of(stream, writer, number)
        os.utime(block, (1_000 + number, 1_000 + number))
    found = read(stream, spark, startingTimestamp="1000500", endingTimestamp="1002000")
    assert values(found) == ["b"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stream": "clics"}, "stream 'clics' does not exist: the journal holds only 'clicks'"),
        ({"journal": "/nowhere"}, "folder /nowhere does not exist"),
        ({"maxOffsetPerTrigger": "1"}, "did you mean 'maxOffsetsPerTrigger'"),
    ],
)
def test_errors_come_at_load(query: Query, options: dict[str, str], says: str) -> None:
    with pytest.raises(Exception, match=re.escape(says)):
        query.frame(**options)


def test_what_belongs_to_streams_is_refused_in_a_batch(
    stream: JournalStream, spark: SparkSession
) -> None:
    with pytest.raises(Exception, match="no option 'consumer'"):
        read(stream, spark, consumer="c").collect()


def test_workers_are_the_program_s_python_and_not_one_on_the_path(
    stream: JournalStream, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/no/such/python3")
    assert values(read(stream, spark.newSession())) == []


def read(
    stream: JournalStream,
    spark: SparkSession,
    *,
    columns: str | None = None,
    starting: str | None = None,
    ending: str | None = None,
    **options: str,
) -> DataFrame:
    register(spark)
    given = {"journal": stream.storage.url, "stream": stream.name, **options}
    given |= {} if starting is None else {"startingOffsets": starting}
    given |= {} if ending is None else {"endingOffsets": ending}
    reader = spark.read.format("penstock").options(**given)
    return (reader if columns is None else reader.schema(columns)).load()


def values(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.collect())


def test_the_native_lane_reads_the_same_records(query: Query) -> None:
    write_blocks(query.stream, [["a", "b"], ["c"]])
    write_blocks(query.stream, [["d"]], receiver="r1")
    query.options |= {"content": "ranges", "maxOffsetsPerTrigger": "3"}
    found: list[list[str]] = []
    query.on_batch = lambda batch, _: found.append(values(scan(batch)))
    query.drain()
    assert [len(batch) for batch in found] == [3, 1]
    assert sorted(value for batch in found for value in batch) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(("left", "told"), [(1, "1 of its 2 ranges"), (0, "none of its ranges")])
def test_scan_refuses_a_part_of_a_batch(query: Query, left: int, told: str) -> None:
    write_blocks(query.stream, [["a"]])
    write_blocks(query.stream, [["b"]], receiver="r1")
    query.options["content"] = "ranges"
    query.on_batch = lambda batch, _: values(scan(batch.limit(left)))  # type: ignore[assignment,return-value]
    with pytest.raises(StreamingQueryException, match=told):
        query.drain()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"endingOffsets": "latest"}, "has no option 'endingOffsets'"),
        ({"consumer": "other"}, "belongs to another query, with checkpoint"),
    ],
)
def test_errors_at_the_start_are_the_sources_own(
    query: Query, tmp_path: Path, options: dict[str, str], says: str
) -> None:
    write_blocks(query.stream, [["a"]])
    Query(query.spark, query.stream, tmp_path / "first", {"consumer": "other"}).drain()
    query.drain()
    query.options |= options
    with pytest.raises(StreamingQueryException) as refused:
        query.drain()
    assert says in str(refused.value)
    assert "UnboundLocalError" not in str(refused.value)


def test_a_query_without_a_checkpoint_location_is_refused(query: Query) -> None:
    running = query.frame().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="has no checkpoint location"):
        running.awaitTermination()


def test_scan_refuses_what_is_no_stream_of_ranges(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="not a stream's ranges"):
        scan(spark.range(1))
