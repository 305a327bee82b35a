"""Queries of Structured Streaming into the sinks: their batches run again, and are written once."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count

from penstock.errors import ConfigError, NotFoundError, SinkError, UnsharedPathError
from penstock.kafka.spark import write as write_to_kafka
from penstock.model import OutputBatch
from penstock.storage import Entry
from penstock.storage.local import LocalStorage
from penstock.structured.sinks import (
    ParquetSink,
    published_files,
    query_batch,
    read_parquet,
)
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import committed
from tests.structured.postgres import Server, needs_postgres

pytestmark = pytest.mark.spark
Sink = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Query:
    """A query over files of lines, a batch for each file."""

    spark: SparkSession
    folder: Path

    def add(self, name: str, lines: list[str]) -> None:
        (self.folder / "in").mkdir(exist_ok=True)
        (self.folder / name).write_text("\n".join(lines))
        (self.folder / name).rename(self.folder / "in" / name)

    def run(self, sink: Sink) -> None:
        """Process all files."""
        lines = self.spark.readStream.option("maxFilesPerTrigger", "1").text(
            str(self.folder / "in")
        )
        query = (
            lines.writeStream.foreachBatch(sink)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def uncommit(self, batch_id: int) -> None:
        """Leave what a kill before the batch's commit would have left."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.folder / "checkpoint" / "commits" / name).unlink()


@pytest.fixture
def query(sc: SparkContext, tmp_path: Path) -> Query:
    return Query(SparkSession.builder.getOrCreate(), tmp_path)


def run_again(query: Query, sink: Sink) -> Counter[str]:
    """Run two batches, the second one twice, then a third; return what shall have been written."""
    query.add("0", ["a", "b"])
    query.run(sink)
    query.add("1", ["c"])
    query.run(sink)
    query.uncommit(1)
    query.add("2", ["d"])
    query.run(sink)
    return Counter("abcd")


def test_parquet(query: Query, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    with pytest.raises(SinkError, match="no batch is published"):
        read_parquet(query.spark, tmp_path / "out")
    written = run_again(query, sink)
    found = read_parquet(query.spark, tmp_path / "out").collect()
    assert Counter(row.value for row in found) == written
    zombie = query.spark.createDataFrame([("zombie",)], ["value"])
    location = next((tmp_path / "out" / "_published").iterdir()).name
    with pytest.raises(SinkError, match="but batch 2 is published"):
        sink.write(zombie, OutputBatch(location, "foreachBatch", 1, plan="p"))
    assert read_parquet(query.spark, tmp_path / "out").count() == 4


BATCH = OutputBatch("q", "out", 0, plan="p")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mapreduce.output.basename", "lines"),
        ("mapreduce.output.basename", "_lines"),
        ("mapreduce.output.basename", "sub/lines"),
        ("mapreduce.fileoutputcommitter.algorithm.version", "2"),
    ],
)
def test_what_tasks_wrote_is_published_whatever_hadoops_settings_say(
    query: Query, tmp_path: Path, name: str, value: str
) -> None:
    conf = query.spark.sparkContext._jsc.hadoopConfiguration()
    conf.set(name, value)
    try:
        ParquetSink(tmp_path / "out").write(query.spark.range(3), BATCH)
    finally:
        conf.unset(name)
    assert read_parquet(query.spark, tmp_path / "out").count() == 3


@pytest.mark.parametrize("compact_interval", ["10", "1"])
def test_a_batch_without_rows_has_a_file_with_its_columns(
    query: Query, tmp_path: Path, compact_interval: str
) -> None:
    name = "spark.sql.streaming.fileSink.log.compactInterval"
    query.spark.conf.set(name, compact_interval)
    try:
        ParquetSink(tmp_path / "out").write(query.spark.range(0), BATCH)
    finally:
        query.spark.conf.unset(name)
    assert len(published_files(tmp_path / "out")) == 1
    assert read_parquet(query.spark, tmp_path / "out").columns == ["id"]
    assert not list((tmp_path / "out").rglob("_spark_metadata/*"))


def test_tasks_write_by_the_session_s_settings(query: Query, tmp_path: Path) -> None:
    name = "spark.sql.parquet.datetimeRebaseModeInWrite"
    query.spark.conf.set(name, "EXCEPTION")
    try:
        with pytest.raises(Exception, match=r"WRITE_ANCIENT_DATETIME"):
            ParquetSink(tmp_path).write(query.spark.sql("SELECT date'1500-01-01' AS day"), BATCH)
        assert query.spark.sparkContext.getLocalProperty(name) is None
    finally:
        query.spark.conf.unset(name)


def test_a_folder_of_any_name(query: Query, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c#d+é"
    ParquetSink(folder).write(query.spark.range(3), BATCH)
    assert read_parquet(query.spark, folder).count() == 3


def test_only_files_that_the_driver_sees_as_tasks_wrote_them_are_published(
    query: Query, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if tasks had written to another machine's disk."""
    whole = LocalStorage.list

    def cut(self: LocalStorage, folder: str = "") -> Sequence[Entry]:
        found = whole(self, folder)
        return [
            each._replace(size=each.size - 1) if "part-" in each.name else each for each in found
        ]

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "list", lambda *_: [])
        with pytest.raises(
            UnsharedPathError, match="does not see 2 of 2 files, such as part-00000"
        ):
            ParquetSink(tmp_path / "out").write(query.spark.range(0, 3, 1, 2), BATCH)
        patch.setattr(LocalStorage, "list", cut)
        with pytest.raises(UnsharedPathError, match="not with the sizes that they had"):
            ParquetSink(tmp_path / "out").write(query.spark.range(3), BATCH)
        patch.setattr(LocalStorage, "read", _not_found)
        with pytest.raises(UnsharedPathError, match="does not see the files that tasks wrote"):
            ParquetSink(tmp_path / "out").write(query.spark.range(3), BATCH)
    assert published_files(tmp_path / "out") == []
    ParquetSink(tmp_path / "out").write(query.spark.range(3), BATCH)
    assert read_parquet(query.spark, tmp_path / "out").count() == 3


def _not_found(self: LocalStorage, path: str, *_: int) -> bytes:
    raise NotFoundError("there is no such file", operation="read", path=path, hint="")


def test_fields_of_one_name_are_refused(query: Query, tmp_path: Path) -> None:
    df = query.spark.sql("SELECT array(named_struct('a', 1, 'A', 2)) AS list")
    with pytest.raises(ConfigError, match="two columns of the DataFrame are the same"):
        ParquetSink(tmp_path / "out").write(df, BATCH)


def test_a_second_write_of_a_batch_is_refused(query: Query, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")

    def write_twice(df: DataFrame, batch_id: int) -> None:
        sink(df.where("value < 'b'"), batch_id)
        sink(df.where("value >= 'b'"), batch_id)

    query.add("0", ["a", "b"])
    for _ in range(2):  # also when the batch, written in part, runs again
        with pytest.raises(StreamingQueryException, match="already in this run"):
            query.run(write_twice)


def test_a_program_may_set_a_job_group_of_its_own(query: Query, tmp_path: Path) -> None:
    """A batch that was written before the function failed runs again in the same process."""
    sink, fails = ParquetSink(tmp_path / "out"), [True]

    def write(df: DataFrame, batch_id: int) -> None:
        df.sparkSession.sparkContext.setJobGroup("etl", f"load {batch_id}")
        sink(df, batch_id)
        if fails:
            fails.pop()
            raise RuntimeError("what follows the sink fails")

    query.add("0", ["a"])
    with pytest.raises(StreamingQueryException, match="what follows the sink fails"):
        query.run(write)
    query.add("1", ["b"])
    query.run(write)
    query.uncommit(1)
    query.run(write)


COLUMNS = """
 cast(1 as tinyint) as small, 2L as big, 1.5D as float, cast(1.25 as decimal(9,2)) as price,
 true as flag, date'2026-01-02' as day, timestamp'2026-01-02 03:04:05.678+02:00' as at,
 timestamp_ntz'2026-01-02 03:04:05' as wall, x'00ff' as bytes, array(1, 2) as list,
 named_struct('at', timestamp'2026-01-02 03:04:05.678901+02:00') as struct,
 cast(null as string) as none, '' as empty
"""
TYPES = (
    "small smallint, big bigint, float double precision, price numeric, flag boolean, day date, "
    "at timestamp with time zone, wall timestamp, bytes bytea, list jsonb, struct jsonb, "
    "none text, empty text"
)


@needs_postgres
@pytest.mark.slow
def test_a_table_of_postgres(query: Query) -> None:
    import psycopg

    from penstock.structured.sinks import PostgresSink

    server = Server()
    server.start()
    try:
        with psycopg.connect(server.url, autocommit=True) as db:
            db.execute("CREATE TABLE lines (value text)")
            written = run_again(query, PostgresSink(server.url, "lines"))
            found = db.execute("SELECT value FROM lines").fetchall()
            assert Counter(value for (value,) in found) == written
            db.execute(f"CREATE TABLE types ({TYPES})")  # type: ignore[arg-type,unused-ignore]
            df = query.spark.sql(f"SELECT {COLUMNS}")
            PostgresSink(server.url, "types").write(df, OutputBatch("q", "types", 0, plan="p"))
            row = db.execute(
                "SELECT small, big, float, price::text, flag, day::text, "
                "(at at time zone 'UTC')::text, wall::text, bytes, list, struct, none, empty "
                "FROM types"
            ).fetchone()
    finally:
        server.stop()
    assert row == (
        *(1, 2, 1.5, "1.25", True, "2026-01-02", "2026-01-02 01:04:05.678"),
        *("2026-01-02 03:04:05", b"\x00\xff", [1, 2]),
        *({"at": "2026-01-02T01:04:05.678901Z"}, None, ""),
    )


@pytest.mark.slow
def test_kafka(query: Query, broker: Broker) -> None:
    topic = broker.create_topic("structured-out")

    def write(df: DataFrame, batch_id: int) -> None:
        output = query_batch(df, batch_id)
        write_to_kafka(df, output, topic, broker.conf, delivery="exactly_once")

    assert committed(broker, topic) == Counter()
    written = run_again(query, write)
    assert committed(broker, topic) == written


@pytest.mark.slow
def test_kafka_where_the_first_batches_were_left_out(query: Query, broker: Broker) -> None:
    """Missing tokens would be taken for expired ones, in each start anew."""
    topic = broker.create_topic("structured-left-out")

    def write(df: DataFrame, batch_id: int) -> None:
        if batch_id > 0:
            output = query_batch(df, batch_id)
            write_to_kafka(df, output, topic, broker.conf, delivery="exactly_once")

    query.add("0", ["a"])
    query.add("1", ["b"])
    query.run(write)
    assert committed(broker, topic) == Counter("b")


def test_a_copy_of_the_query_is_another_one(query: Query, tmp_path: Path) -> None:
    query.add("0", ["a"])
    sink = ParquetSink(tmp_path / "out")
    query.run(sink)
    shutil.rmtree(tmp_path / "checkpoint")
    query.run(sink)  # a new location has a new id: these are other batches
    assert read_parquet(query.spark, tmp_path / "out").count() == 2


def test_outside_of_a_query(query: Query, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="batch 3 has no query in this thread"):
        ParquetSink(tmp_path / "out")(query.spark.range(1), 3)


def test_what_a_batch_is_known_by(query: Query) -> None:
    seen: list[OutputBatch] = []

    def note(df: DataFrame, batch_id: int) -> None:
        seen.append(query_batch(df, batch_id))

    query.add("0", ["a"])
    query.add("1", ["b"])
    query.run(note)
    query.uncommit(1)
    query.run(note)
    # Only the first batch of a run may be written.
    assert [(batch.batch_id, batch.may_be_written) for batch in seen] == [
        *((0, True), (1, False)),
        (1, True),
    ]
    assert len({batch.location_id for batch in seen}) == 1
    assert seen[0].plan != seen[1].plan == seen[2].plan != ""


def test_a_checkpoint_restored_from_a_copy_one_batch_older(query: Query, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    query.add("0", ["a"])
    query.run(sink)
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    query.add("1", ["b"])
    query.run(sink)
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    query.add("2", ["c"])
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="was restored from an older copy"):
            query.run(sink)


def test_what_is_no_batch_is_refused(query: Query, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"batch is given as 0.*query_batch\(df, batch_id\)"):
        ParquetSink(tmp_path / "out").write(query.spark.range(1), 0)  # type: ignore[arg-type]


def test_batches_with_other_columns_are_read_with_all_of_them(query: Query, tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    for batch_id, columns in enumerate(["1 as a", "2 as a, 'x' as b"]):
        sink.write(
            query.spark.sql(f"SELECT {columns}"), OutputBatch("q", "out", batch_id, plan="p")
        )
    found = read_parquet(query.spark, tmp_path / "out").orderBy("a").collect()
    assert [row.asDict() for row in found] == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


def test_what_is_observed_of_a_batch_is_told(query: Query, tmp_path: Path) -> None:
    rows, sink, seen = count("*").alias("rows"), ParquetSink(tmp_path / "out"), []

    def write(df: DataFrame, batch_id: int) -> None:
        observation = Observation()
        sink(df.observe(observation, rows), batch_id)
        seen.append(observation.get)

    query.add("0", ["a", "b"])
    query.run(write)
    assert seen == [{"rows": 2}]
    observation = Observation()
    sink.write(query.spark.range(3).observe(observation, rows), BATCH)
    assert observation.get == {"rows": 3}
