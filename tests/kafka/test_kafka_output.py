"""Programs that write to a real broker's topics, stepped by a manual clock."""

from __future__ import annotations

import gc
import json
import runpy
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.checkpoint.tools import plan_rewind
from penstock.errors import (
    BatchFailedError,
    CheckpointError,
    ConcurrentDriverError,
    ConfigError,
    KafkaError,
    RecoveryMismatchError,
)
from penstock.kafka import KafkaRange, KafkaRecord
from penstock.kafka.reader import read_records
from penstock.kafka.sink import Encoder, SinkBatches
from penstock.kafka.spark import write, write_rdd
from penstock.streaming import DStream, OutputBatch, StreamingContext
from penstock.testing.stepper import Stepper
from tests.kafka.broker import Broker
from tests.kafka.clients import living_clients
from tests.kafka.program import Program
from tests.kafka.sink_driver import committed
from tests.waiting import WAIT_S, eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"out-{next(_number)}")


class Copies(Program):
    """A program that reads a topic of its own, and writes another."""

    def __init__(self, sc: SparkContext, broker: Broker, location: Path) -> None:
        super().__init__(sc, broker, location)
        self.conf = broker.conf
        self.source = broker.create_topic(f"in-{next(_number)}", partitions=2)

    def send(self, values: list[bytes]) -> None:
        for partition in (0, 1):
            self.broker.produce(self.source, values[partition::2], partition=partition, key=b"k")

    def write(self, define: Callable[[DStream], None]) -> Stepper:
        return self.start([self.source], define=define)

    def uncommit(self, batch_id: int) -> None:
        """Leave what a kill before the batch's commit would have left."""
        self.stop()
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.location / "commits" / name).unlink()


@pytest.fixture
def copies(sc: SparkContext, broker: Broker, tmp_path: Path) -> Iterator[Copies]:
    program = Copies(sc, broker, tmp_path / "checkpoint")
    yield program
    program.stop()


def records(broker: Broker, topic: str) -> list[KafkaRecord]:
    consumer = Consumer({**broker.conf, "group.id": "judge"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), 30)
    consumer.close()
    return list(read_records(broker.conf, [KafkaRange(topic, 0, 0, end)]))


def test_the_program_of_the_issue_over_a_batch_that_runs_again(copies: Copies, topic: str) -> None:
    def copy(stream: DStream) -> None:
        stream.to_kafka(
            topic,
            copies.conf,
            key=lambda r: r.key,
            value=lambda r: r.value,
            delivery="exactly_once",
            name="copy",
        )

    copies.send([b"%d" % n for n in range(6)])
    copies.write(copy).step()
    copies.uncommit(0)
    copies.send([b"6", b"7"])
    copies.write(copy).step(2)
    assert committed(copies.broker, topic) == Counter(str(n) for n in range(8))


def test_a_program_that_stopped_leaves_no_client(copies: Copies, topic: str) -> None:
    """The garbage collector may come after hours."""
    gc.collect()
    before = living_clients()
    gc.disable()
    try:
        copies.send([b"a"])
        copies.write(
            lambda stream: stream.to_kafka(
                topic, copies.conf, value=lambda r: r.value, delivery="exactly_once"
            )
        ).step()
        assert living_clients() - before
        copies.stop()
        assert eventually(lambda: living_clients() <= before)
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["DataFrame", "RDD"])
def test_a_task_whose_input_is_cut_off_commits_nothing(
    broker: Broker, topic: str, sc: SparkContext, kind: str
) -> None:
    """PySpark's workers take an input that the JVM could not complete for one that has ended."""
    rows = 30_000

    def send(value: str, output: OutputBatch) -> None:
        df = SparkSession(sc).range(0, rows, 1, 1).selectExpr(f"{value} AS value")
        if kind == "DataFrame":
            write(df, output, topic, broker.conf, delivery="exactly_once")
        else:
            sink = SinkBatches(broker.conf, topic, output.location_id, output.output)
            with closing(sink):
                records = df.rdd.map(lambda row: row.value)
                write_rdd(records, output, Encoder(topic), broker.conf, sink)

    first = OutputBatch(uuid4().hex, "out", 0, plan="p")
    fails = f"if(id < {rows - 1}, string(id), raise_error('shuffle file lost'))"
    with pytest.raises(Exception, match="shuffle file lost"):
        send(fails, first)
    assert not committed(broker, topic)
    send("string(id)", replace(first, may_be_written=True))
    assert committed(broker, topic) == Counter(str(number) for number in range(rows))


def test_what_is_sent_of_a_record(copies: Copies, topic: str) -> None:
    copies.send([b"1"])

    def define(stream: DStream) -> None:
        words = stream.flatMap(lambda r: ["a", b"b"])
        words.to_kafka(topic, copies.conf)
        words.to_kafka(
            topic,
            copies.conf,
            key=lambda word: None if word == "a" else "k",
            value=lambda word: None,
            headers=lambda word: [("h", b"1"), ("h", "2"), ("h", None)],
        )

    copies.write(define).step()
    headers = (("h", b"1"), ("h", b"2"), ("h", None))
    assert [(r.key, r.value, r.headers) for r in records(copies.broker, topic)] == [
        (None, b"a", ()),
        (None, b"b", ()),
        (None, None, headers),
        (b"k", None, headers),
    ]


def test_a_record_that_is_no_bytes_is_named(copies: Copies, topic: str) -> None:
    copies.send([b"1"])
    stepper = copies.write(
        lambda stream: stream.map(lambda r: r.key).map(len).to_kafka(topic, copies.conf)
    )
    with pytest.raises(
        BatchFailedError, match=r"the value of a record is a int.*value=lam.*record=int 1"
    ):
        stepper.step()


def test_a_batch_that_failed_in_part_is_completed(
    copies: Copies, topic: str, tmp_path: Path
) -> None:
    may_pass = tmp_path / "may-pass"

    def fail(value: bytes) -> bytes:
        if value == b"1" and not may_pass.exists():  # of partition 1
            raise ValueError("not yet")
        return value

    def define(stream: DStream) -> None:
        values = stream.map(lambda r: fail(r.value))
        values.to_kafka(topic, copies.conf, delivery="exactly_once", name="copy")

    copies.send([b"0", b"1", b"2", b"3"])
    stepper = copies.write(define)
    with pytest.raises(BatchFailedError, match="not yet"):
        stepper.step()
    may_pass.touch()
    copies.write(define).step()
    assert committed(copies.broker, topic) == Counter("0123")


def test_dataframes(copies: Copies, topic: str) -> None:
    other = copies.broker.create_topic(f"{topic}-other")

    def define(stream: DStream) -> None:
        def count(df: DataFrame, batch_id: int, output: OutputBatch) -> None:
            counts = (
                df.groupBy("key")
                .count()
                .selectExpr(
                    "key",
                    "cast(count as string) value",
                    f"if(count > 3, '{other}', null) topic",
                    "array(named_struct('key', 'h', 'value', cast('1' as binary))) headers",
                )
            )
            write(counts, output, topic, copies.conf, delivery="exactly_once")
            write(df.select("value"), output, topic, copies.conf)

        stream.foreachBatch(count, name="counts")

    copies.send([b"a", b"b", b"c", b"d"])
    copies.write(define).step()
    copies.uncommit(0)
    copies.write(define).step()
    assert committed(copies.broker, topic) == Counter("aabbccdd")  # these at least once
    (found,) = records(copies.broker, other)
    assert (found.key, found.value, found.headers) == (b"k", b"4", (("h", b"1"),))


def test_an_output_has_one_write(copies: Copies, topic: str) -> None:
    def twice(df: DataFrame, batch_id: int, output: OutputBatch) -> None:
        for _ in range(2):
            write(df.select("value"), output, topic, copies.conf, delivery="exactly_once")

    copies.send([b"1"])
    stepper = copies.write(lambda stream: stream.foreachBatch(twice, name="twice"))
    with pytest.raises(
        BatchFailedError, match="output 'twice' has written batch 0 already in this run"
    ):
        stepper.step()


def test_a_program_that_ran_elsewhere_meanwhile(
    sc: SparkContext, broker: Broker, topic: str
) -> None:
    """Of this process it is fenced once, and when it is started again it takes over."""
    frame = SparkSession.builder.getOrCreate().range(1).selectExpr("'v' value")

    def write_batch(batch_id: int, **conf: str) -> None:
        output = OutputBatch(f"elsewhere-{topic}", "out", batch_id, plan="p")
        write(frame, output, topic, {**broker.conf, **conf}, delivery="exactly_once")

    write_batch(0)
    elsewhere = SinkBatches(broker.conf, topic, f"elsewhere-{topic}", "out")
    elsewhere.begin(1, 1, may_be_written=False)
    elsewhere.close()
    with pytest.raises(ConcurrentDriverError):
        write_batch(2)
    write_batch(2)
    write_batch(3, **{"client.id": "another"})
    write_batch(4)
    assert committed(broker, topic) == Counter({"v": 4})


def test_a_location_that_was_restored_or_is_to_be_taken_back(copies: Copies, topic: str) -> None:
    def define(stream: DStream) -> None:
        stream.map(lambda r: r.value).to_kafka(
            topic, copies.conf, delivery="exactly_once", name="copy"
        )

    for value in (b"a", b"b"):
        copies.send([value])
        copies.write(define).step()
        copies.stop()
        if value == b"a":
            shutil.copytree(copies.location, copies.location.with_name("saved"))
    with pytest.raises(CheckpointError, match="output copy writes each batch exactly once"):
        plan_rewind(copies.location, to_batch=0)
    shutil.rmtree(copies.location)
    shutil.copytree(copies.location.with_name("saved"), copies.location)
    copies.send([b"c"])
    with pytest.raises(BatchFailedError, match="restored from an older copy"):
        copies.write(define).step()
    assert committed(copies.broker, topic) == Counter("ab")


def test_a_batch_that_is_written_and_empty_now_is_refused(copies: Copies, topic: str) -> None:
    def define(stream: DStream) -> None:
        stream.map(lambda r: r.value).to_kafka(
            topic, copies.conf, delivery="exactly_once", name="copy"
        )

    copies.send([b"1", b"2"])
    copies.write(define).step()
    copies.uncommit(0)
    empty = copies.write(
        lambda stream: define(stream.transform(lambda rdd: rdd.context.emptyRDD()))
    )
    with pytest.raises(BatchFailedError, match="of which 2 are written, and has 0 now"):
        empty.step()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["1 value"], "column value is int"),
        (["'k' key"], "no column value"),
        (["'v' value", "'w' Value"], "two columns value"),
        (["'v' value", "'h' headers"], "column headers is string"),
        (["'v' value", "cast('t' as binary) topic"], "column topic is binary"),
    ],
)
def test_columns_of_other_types(
    sc: SparkContext, broker: Broker, columns: list[str], message: str
) -> None:
    frame = SparkSession.builder.getOrCreate().range(1).selectExpr(*columns)
    with pytest.raises(ConfigError, match=message):
        write(frame, OutputBatch("location", "out", 0), "t", broker.conf)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delivery": "once"}, "delivery='once' is not possible.*at_least_once, exactly_once"),
        ({"key": "k"}, "key='k' is not possible.*key=lambda r"),
        ({"topic": ""}, "topic '' is not possible"),
        ({"conf": {}}, r"bootstrap\.servers is missing"),
        ({"conf": {"transactional.id": "t"}}, r"transactional\.id is set by penstock"),
        ({"conf": {"linger.msec": 1}}, r"refuses its settings.*linger\.msec"),
        ({"conf": {"acks": 1}, "delivery": "exactly_once"}, r"refuses its settings.*acks"),
    ],
)
def test_wrong_arguments(
    sc: SparkContext, broker: Broker, options: dict[str, Any], message: str
) -> None:
    conf = options.get("conf")
    conf = {**broker.conf, **conf} if conf else conf if conf == {} else broker.conf
    with pytest.raises(ConfigError, match=message):
        StreamingContext(sc, 1).queueStream([[1]]).to_kafka(
            **{"topic": "t", **options, "conf": conf}
        )


def test_an_unknown_topic_ends_the_start(copies: Copies) -> None:
    with pytest.raises(KafkaError, match="nowhere"):
        copies.write(lambda stream: stream.to_kafka("nowhere", copies.conf))


def test_an_exactly_once_output_may_not_go(copies: Copies, topic: str) -> None:
    def define(name: str) -> Callable[[DStream], None]:
        return lambda stream: stream.map(lambda r: r.value).to_kafka(
            topic, copies.conf, delivery="exactly_once", name=name
        )

    copies.write(define("copy")).step()
    with pytest.raises(RecoveryMismatchError, match="exactly-once output 'copy'"):
        copies.write(define("other"))


def test_tokens_that_expired_end_the_start(copies: Copies, topic: str) -> None:
    def define(stream: DStream) -> None:
        stream.map(lambda r: r.value).to_kafka(
            topic, copies.conf, delivery="exactly_once", name="copy"
        )

    copies.send([b"1"])
    copies.write(define).step()
    copies.uncommit(0)
    location_id = json.loads((copies.location / "metadata").read_text())["id"]
    admin, group = AdminClient(copies.conf), f"penstock/{location_id}/copy"
    admin.delete_consumer_groups([group])[group].result(WAIT_S)
    with pytest.raises(KafkaError, match="do not know any more which part of it was written"):
        copies.write(define)


def test_the_example_that_counts_in_windows(copies: Copies, topic: str) -> None:
    define = runpy.run_path(str(EXAMPLES / "kafka_windows.py"))["define"]

    def start() -> Stepper:
        copies.stop()
        brokers = copies.conf["bootstrap.servers"]
        return copies.start_program(lambda ssc: define(ssc, brokers, copies.source, topic))

    copies.send([b"a b", b"a"])
    start().step(2)
    copies.uncommit(1)  # of the batch that has the window
    copies.send([b"b"])
    start().step(3)
    found = [(r.key, r.value) for r in records(copies.broker, topic)]
    assert sorted(found) == [(b"a", b"2"), (b"a", b"2"), (b"b", b"1"), (b"b", b"2")]
