"""Spark's own log classes read what is written here, and the other way round."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.checkpoint import (
    CheckpointLocation,
    CommitLog,
    CommitMetadata,
    OffsetLog,
    OffsetSeq,
)
from penstock.checkpoint.checksum import checksum_of
from penstock.checkpoint.log_files import parse_commit_file, parse_offset_file
from penstock.checkpoint.log_format import MalformedLogError, decode_log, encode_log
from penstock.checkpoint.metadata_log import MetadataLog
from penstock.errors import LogFormatError
from penstock.storage import open_storage
from tests.waiting import eventually

from .conftest import as_given

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STREAMING = "org.apache.spark.sql.execution.streaming"

ODD_TEXT = "".join(map(chr, [*range(0x180), *range(0x2000, 0x2070), 0xFEFF, 0xFFFD, 0x1F600]))
ENTRIES = [
    OffsetSeq(7, sources=("0",)),
    OffsetSeq(0, 5, {"z": "1", "a": "/", "é": "2"}, ('{"raw_data":{"0":246189}}', None, "-1")),
    OffsetSeq(2**63 - 1, 2**63 - 1, {f"key{i}": str(i) for i in range(4)}, (None, '"é\u2028😀"')),
    OffsetSeq(1, 1, {"odd": ODD_TEXT}, ('{"a\\nb":"\\u001F"}',)),
    OffsetSeq(1, sources=tuple(f'{{"long":"{"x" * 300}{i}"}}' for i in range(9))),
]


class Spark:
    """Spark's log classes, through py4j, taking and giving this package's values."""

    def __init__(self, sc: SparkContext) -> None:
        from pyspark.sql import SparkSession

        self.session = SparkSession(sc)
        self.jvm: Any = sc._jvm
        self.hadoop_conf: Any = sc._jsc.hadoopConfiguration()

    def cls(self, name: str) -> Any:
        found = self.jvm
        for part in f"{STREAMING}.{name}".split("."):
            found = getattr(found, part)
        return found

    def log(self, kind: str, folder: Path) -> Any:
        new = self.cls(f"checkpointing.{kind}")
        return new(self.session._jsparkSession, str(folder), False)

    def metadata_of(self, entry: OffsetSeq) -> Any:
        conf = self.jvm.PythonUtils.toScalaMap(dict(entry.conf))
        times = (entry.watermark_ms, entry.batch_timestamp_ms)
        return self.cls("checkpointing.OffsetSeqMetadata")(*map(self.long, times), conf)

    def read_file(self, path: Path) -> bytes:
        """Read a file as Hadoop's FileSystem does, which checks checksums."""
        hadoop = self.jvm.org.apache.hadoop
        stream = hadoop.fs.FileSystem.get(self.hadoop_conf).open(hadoop.fs.Path(str(path)))
        try:
            return bytes(hadoop.io.IOUtils.readFullyToByteArray(stream))
        finally:
            stream.close()

    def long(self, value: int) -> Any:
        # py4j would send a small number as an Integer, which fits no Option[Long].
        return self.jvm.java.lang.Long.valueOf(str(value))

    def offset_seq(self, entry: OffsetSeq) -> Any:
        serialized = self.cls("runtime.SerializedOffset")
        option = self.jvm.scala.Option
        offsets = [option.apply(None if s is None else serialized(s)) for s in entry.sources]
        metadata = option.apply(self.metadata_of(entry))
        return self.cls("checkpointing.OffsetSeq")(self.jvm.PythonUtils.toSeq(offsets), metadata)

    def values_of(self, offset_seq: Any) -> OffsetSeq:
        metadata = offset_seq.metadataOpt().get()
        offsets = [offset_seq.offsets().apply(i) for i in range(offset_seq.offsets().size())]
        return OffsetSeq(
            batch_timestamp_ms=metadata.batchTimestampMs(),
            watermark_ms=metadata.batchWatermarkMs(),
            conf=dict(self.jvm.scala.jdk.javaapi.CollectionConverters.asJava(metadata.conf())),
            sources=tuple(o.get().json() if o.isDefined() else None for o in offsets),
        )


@pytest.fixture
def spark(sc: SparkContext) -> Spark:
    return Spark(sc)


def test_spark_reads_our_logs(spark: Spark, tmp_path: Path) -> None:
    with CheckpointLocation(tmp_path) as location:
        for batch_id, entry in enumerate(ENTRIES):
            location.plan(batch_id, entry)
            location.commit(batch_id, next_batch_watermark_ms=entry.watermark_ms)
        theirs = spark.log("OffsetSeqLog", tmp_path / "offsets")
        commits = spark.log("CommitLog", tmp_path / "commits")
        for batch_id, entry in enumerate(ENTRIES):
            assert as_given(spark.values_of(theirs.get(batch_id).get())) == entry
            assert commits.get(batch_id).get().nextBatchWatermarkMs() == entry.watermark_ms
        assert theirs.getLatest().get()._1() == len(ENTRIES) - 1
        path = spark.jvm.org.apache.hadoop.fs.Path(str(tmp_path / "metadata"))
        read = spark.cls("runtime.StreamMetadata").read(path, spark.hadoop_conf)
        assert read.get().id() == location.read_id()


def test_we_read_sparks_logs_and_would_write_them_alike(spark: Spark, tmp_path: Path) -> None:
    theirs = spark.log("OffsetSeqLog", tmp_path / "theirs/offsets")
    commits = spark.log("CommitLog", tmp_path / "theirs/commits")
    for batch_id, entry in enumerate(ENTRIES):
        assert theirs.add(batch_id, spark.offset_seq(entry))
        commit = spark.cls("checkpointing.CommitMetadata")(spark.long(entry.watermark_ms))
        assert commits.add(batch_id, commit)
    read, own = open_storage(tmp_path / "theirs"), open_storage(tmp_path / "ours")
    for batch_id, entry in enumerate(ENTRIES):
        found = OffsetLog(read).get(batch_id)
        assert found == entry
        assert CommitLog(read).get(batch_id) == CommitMetadata(entry.watermark_ms)
        OffsetLog(own).add(batch_id, found)
        CommitLog(own).add(batch_id, CommitMetadata(entry.watermark_ms))
    names = [f"{log}/{n}" for log in ("offsets", "commits") for n in range(len(ENTRIES))]
    sidecars = [name.replace("/", "/.") + ".crc" for name in names]
    for name in names + sidecars:
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def test_spark_adds_nothing_to_an_id_of_ours(spark: Spark, tmp_path: Path) -> None:
    OffsetLog(open_storage(tmp_path)).add(0, ENTRIES[0])
    theirs = spark.log("OffsetSeqLog", tmp_path / "offsets")
    assert not theirs.add(0, spark.offset_seq(ENTRIES[1]))


def test_hadoop_checks_our_checksums(spark: Spark, tmp_path: Path) -> None:
    with CheckpointLocation(tmp_path) as location:
        for batch_id, entry in enumerate(ENTRIES):
            location.plan(batch_id, entry)
            location.commit(batch_id)
    batches = range(len(ENTRIES))
    names = ["metadata", *(f"{log}/{n}" for log in ("offsets", "commits") for n in batches)]
    for path in (tmp_path / name for name in names):
        data, sidecar = path.read_bytes(), path.with_name(f".{path.name}.crc")
        assert spark.read_file(path) == data
        path.write_bytes(data[:-2] + b"\0" + data[-1:])
        with pytest.raises(Exception, match="ChecksumException"):
            spark.read_file(path)
        path.write_bytes(data)
        for left_by_a_power_cut in (b"", bytes(len(sidecar.read_bytes()))):
            sidecar.write_bytes(left_by_a_power_cut)
            assert spark.read_file(path) == data


def test_sparks_logs_read_a_file_whose_checksum_a_power_cut_took(
    spark: Spark, tmp_path: Path
) -> None:
    OffsetLog(open_storage(tmp_path)).add(0, ENTRIES[4])
    for left in (b"", bytes(32)):
        (tmp_path / "offsets/.0.crc").write_bytes(left)
        read = spark.log("OffsetSeqLog", tmp_path / "offsets").get(0).get()
        assert spark.values_of(read) == ENTRIES[4]


VERSION_LINES = ["v1", "v2", "v0", "v-1", "", "V1", " v1", "v1.0"]


@pytest.mark.parametrize("line", VERSION_LINES)
def test_versions_are_judged_as_by_spark(spark: Spark, line: str) -> None:
    def judged_by_spark() -> str:
        try:
            spark.cls("checkpointing.MetadataVersionUtil").validateVersion(line, 1)
        except Exception as error:
            return str(error)
        return ""

    def judged_here() -> str:
        try:
            decode_log(encode_log(1, ["x"]).replace(b"v1", line.encode()), 1)
        except MalformedLogError as error:
            return str(error)
        return ""

    theirs, ours = judged_by_spark(), judged_here()
    newer = (
        "The log file was produced by a newer version of Spark and cannot be read by this version."
    )
    assert (newer in theirs) == (newer in ours)
    assert bool(theirs) == bool(ours)
    if ours and newer not in ours:
        assert ours in theirs


def test_later_versions_that_spark_writes_are_refused(spark: Spark, tmp_path: Path) -> None:
    log = spark.log("CommitLog", tmp_path / "commits")
    nothing, no_sinks = spark.jvm.scala.Option.apply(None), spark.jvm.PythonUtils.toScalaMap({})
    assert log.add(0, log.createMetadata(spark.long(3), nothing, no_sinks, 2))
    with pytest.raises(LogFormatError, match=r"encountered v2\. .* Please upgrade\."):
        CommitLog(open_storage(tmp_path)).get(0)


METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":5,"conf":{}}'
OFFSET_FILES = [
    "",
    "v1",
    "1\n{}\n0",
    f"v1\n{METADATA}",
    f'v1\n{METADATA}\n{{"a":1}}\n-',
    f"v1\n{METADATA}\n 0 \n\n-",
    f"v1\r\n{METADATA}\r\n0\r\n-\r\n",
    f"v01\n{METADATA}\n0\n\n",
    f"v1\n {METADATA} and more\n0",
    f"v2147483648\n{METADATA}\n0",
    'v1\n\n{"a":1}',
    f'v2\n{METADATA}\n0:{{"a":1}}\nb:-\n',
    f"v2\n{METADATA}\nb",
    f"v2\n{METADATA}\na:0\n\nb:0",
]


@pytest.mark.parametrize("text", OFFSET_FILES)
def test_the_tolerant_reader_reads_what_spark_reads(
    spark: Spark, tmp_path: Path, text: str
) -> None:
    def spark_reads() -> list[tuple[str | None, str | None]] | None:
        data = spark.jvm.java.io.ByteArrayInputStream(text.encode())
        try:
            found = spark.log("OffsetSeqLog", tmp_path).deserialize(data)
        except Exception:
            return None
        inside = re.fullmatch(r"[\[{](.*)[]}]", found.toString(), re.DOTALL)
        assert inside is not None
        sources = inside[1].split(", ") if inside[1] else []
        named = found.version() == 2
        pairs = (s.split(": ", 1) if named else (None, s) for s in sources)
        return [(name, None if offset == "-" else offset) for name, offset in pairs]

    def read_here() -> list[tuple[str | None, str | None]] | None:
        try:
            return [tuple(source) for source in parse_offset_file(text.encode()).sources]
        except MalformedLogError:
            return None

    assert read_here() == spark_reads()


def test_every_version_that_spark_writes_is_read(spark: Spark, tmp_path: Path) -> None:
    scala_map, option = spark.jvm.PythonUtils.toScalaMap, spark.jvm.scala.Option.apply
    offset = spark.cls("runtime.SerializedOffset")('{"t":{"0":1}}')
    info = spark.cls("checkpointing.SourceMetadataInfo")("0", "org.X", "v2")
    metadata = spark.cls("checkpointing.OffsetSeqMetadataV2")(
        spark.long(5), spark.long(7), scala_map({"a": "b"}), scala_map({"0": info}), option(None)
    )
    sources = scala_map({"clicks": option(offset), "idle": option(None)})
    offsets = spark.log("OffsetSeqLog", tmp_path / "offsets")
    assert offsets.add(0, spark.cls("checkpointing.OffsetMap")(sources, metadata))
    read = parse_offset_file((tmp_path / "offsets/0").read_bytes())
    assert read.version == 2
    assert dict(read.sources) == {"clicks": '{"t":{"0":1}}', "idle": None}
    assert read.metadata == {
        "batchWatermarkMs": 5,
        "batchTimestampMs": 7,
        "conf": {"a": "b"},
        "sourceMetadataInfo": {"0": {"sourceId": "0", "providerName": "org.X", "apiVersion": "v2"}},
    }

    commits = spark.log("CommitLog", tmp_path / "commits")
    sink = spark.cls("checkpointing.SinkMetadataInfo")("s", "12", "org.Y", "v1", True)
    sinks = scala_map({"s": sink})
    assert commits.add(0, spark.cls("checkpointing.CommitMetadata")(3))
    assert commits.add(1, commits.createMetadata(spark.long(3), option(None), scala_map({}), 2))
    assert commits.add(2, commits.createMetadata(spark.long(3), option(None), sinks, 3))
    files = [parse_commit_file((tmp_path / f"commits/{n}").read_bytes()) for n in range(3)]
    assert [file.version for file in files] == [1, 2, 3]
    assert [file.metadata["nextBatchWatermarkMs"] for file in files] == [3, 3, 3]
    assert files[2].metadata["sinkMetadataMap"]["s"]["commitOffset"] == "12"


def run_query(session: SparkSession, place: Path, *, stateful: bool, batches: int) -> None:
    """Run a query of Spark's own until it has done ``batches`` more."""
    rows = session.readStream.format("rate").option("rowsPerSecond", 50).load()
    if stateful:
        rows = rows.withWatermark("timestamp", "1 second").groupBy("value").count()
    writer = rows.writeStream.format("noop").outputMode("update" if stateful else "append")
    query = writer.option("checkpointLocation", str(place)).start()
    try:

        def has_done_them() -> bool:
            assert query.exception() is None
            return len({progress["batchId"] for progress in query.recentProgress}) >= batches

        assert eventually(has_done_them)
    finally:
        query.stop()


def log_files(log: MetadataLog[Any], place: Path) -> Iterator[tuple[Path, bytes]]:
    """Yield the files of a log, each with what would be written for the entry in it."""
    for batch_id in log.batch_ids():
        entry = log.get(batch_id)
        yield place / str(batch_id), encode_log(log.version, log.encode(entry))


@pytest.mark.parametrize("stateful", [False, True])
def test_we_read_the_checkpoint_of_a_real_query(
    spark: Spark, tmp_path: Path, stateful: bool
) -> None:
    run_query(spark.session, tmp_path, stateful=stateful, batches=3)
    location = CheckpointLocation(tmp_path)
    files = [
        *log_files(location.offsets, tmp_path / "offsets"),
        *log_files(location.commits, tmp_path / "commits"),
    ]
    assert len(files) >= 6
    for path, rewritten in files:
        assert path.read_bytes() == rewritten
        assert (path.parent / f".{path.name}.crc").read_bytes() == checksum_of(rewritten)
    location.offsets.validate()
    location.commits.validate()
    # To stop a query may cut off a write of its own, whose temporary file
    # Spark leaves behind, and perhaps its checksum.
    orphans = (*location.offsets.orphans(), *location.commits.orphans())
    temporary = re.compile(r"\.\d+\.[0-9a-f-]{36}\.tmp|\.\.\d+\.[0-9a-f-]{36}\.tmp\.crc")
    assert all(map(temporary.fullmatch, orphans)), orphans
    plan = location.acquire()
    assert plan.next_batch_id >= 3
    assert location.read_id() in (tmp_path / "metadata").read_text()
    location.release()


def test_a_real_query_runs_the_batch_that_we_planned(spark: Spark, tmp_path: Path) -> None:
    """Spark goes on from a checkpoint location that was last driven from here."""
    run_query(spark.session, tmp_path, stateful=False, batches=2)
    with CheckpointLocation(tmp_path) as location:
        for batch_id in location.recover().rerun:
            location.commit(batch_id)
        batch_id = location.recover().next_batch_id
        latest = location.offsets.latest()
        assert latest is not None
        planned = OffsetSeq(
            latest[1].batch_timestamp_ms + 1,
            conf=latest[1].conf,
            sources=(str(int(str(latest[1].sources[0])) + 1),),
        )
        location.plan(batch_id, planned)
    run_query(spark.session, tmp_path, stateful=False, batches=2)
    location = CheckpointLocation(tmp_path)
    assert as_given(location.offsets.require(batch_id)) == planned
    assert location.commits.get(batch_id) == CommitMetadata(0)
    assert location.recover().next_batch_id >= batch_id + 2
