"""Programs over a real broker's topics, stepped by a manual clock."""

from __future__ import annotations

import re
from datetime import datetime, timezone
from itertools import chain, count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame

from penstock.errors import ConfigError, KafkaDataLossError, KafkaError, RecoveryMismatchError
from penstock.kafka import KafkaRecord
from penstock.streaming import DStream
from tests.kafka.broker import Broker
from tests.kafka.program import Program
from tests.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"stream-{next(_number)}", partitions=2)


def test_each_record_is_in_one_batch_over_restarts(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"a", b"b"])
    program.broker.produce(topic, [b"c"], partition=1)
    program.start([topic]).step()
    program.broker.produce(topic, [b"d"])
    program.start([topic]).step(2)
    assert program.seen == [[b"a", b"b", b"c"], [b"d"], []]
    assert program.offsets(1)[0][topic] == {"0": 3, "1": 1}


def test_latest_is_resolved_once_in_the_life_of_a_location(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"before"])
    program.start([topic], starting="latest")
    program.stop()  # before any batch
    program.broker.produce(topic, [b"between"])
    program.start([topic], starting="latest").step()
    assert program.seen == [[b"between"]]


def test_other_beginnings(program: Program, topic: str, tmp_path: Path) -> None:
    for n in range(4):
        program.broker.produce(topic, [b"%d" % n], timestamp=1000 * n + 1000)
    for number, (starting, expected) in enumerate(
        [
            ({topic: {0: 3}}, [b"3"]),
            (datetime.fromtimestamp(2, timezone.utc), [b"1", b"2", b"3"]),
        ]
    ):
        program.location = tmp_path / str(number)
        program.start([topic], starting=starting).step()
        assert program.seen.pop() == expected
    program.location = tmp_path / "wrong"
    with pytest.raises(ConfigError, match=rf"starting= names {topic}/7, which does not exist"):
        program.start([topic], starting={topic: {7: 0}})


def test_records_and_decoders(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"1", None], key=b"k")
    found: list[KafkaRecord] = []
    program.start(
        [topic],
        keyDecoder=bytes.decode,
        valueDecoder=int,
        define=lambda stream: stream.foreachRDD(lambda rdd: found.extend(rdd.collect())),
    ).step()
    assert [(r.key, r.value, r.topic, r.partition, r.offset) for r in found] == [
        ("k", 1, topic, 0, 0),
        ("k", None, topic, 0, 1),
    ]


def test_a_dataframe_has_the_columns_asked_for(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"v"], key=b"k", headers=[("h", b"1")])
    rows: list[Any] = []
    types: list[str] = []

    def note(df: DataFrame, batch_id: int) -> None:
        types.append(df.schema.simpleString())
        rows.extend(row.asDict(recursive=True) for row in df.collect())

    program.start([topic], define=lambda stream: stream.foreachBatch(note)).step(2)
    assert (
        types[0]
        == types[1]
        == (
            "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,"
            "timestamp:timestamp,headers:array<struct<key:string,value:binary>>>"
        )
    )
    (row,) = rows
    assert (row["value"], row["headers"]) == (b"v", [{"key": "h", "value": b"1"}])
    program.location = program.location.with_name("few")
    few = program.start([topic], columns=["value"], define=lambda stream: stream.foreachBatch(note))
    few.step()
    assert rows[1:] == [{"value": b"v"}]


def test_partitions_and_topics_that_come_are_read_from_their_beginning(
    program: Program, topic: str
) -> None:
    stepper = program.start(re.compile(f"{topic}.*"), starting="latest")
    stepper.step()
    program.broker.add_partitions(topic, 3)
    program.broker.produce(topic, [b"partition"], partition=2)
    program.broker.create_topic(f"{topic}-more")
    program.broker.produce(f"{topic}-more", [b"topic"])
    stepper.step(3)
    assert sorted(chain.from_iterable(program.seen)) == [b"partition", b"topic"]


def test_a_partition_that_lags_is_read_by_several_tasks(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"%06d" % n for n in range(251_000)])
    tasks: list[int] = []

    def collect(stream: DStream) -> None:
        program.collect(stream)
        stream.foreachRDD(lambda rdd: tasks.append(rdd.getNumPartitions()))

    program.start([topic], define=collect).step()
    assert program.seen == [[b"%06d" % n for n in range(251_000)]]
    assert tasks[0] > 1


def test_a_limit_applies_to_each_partition(program: Program, topic: str) -> None:
    setting = "spark.streaming.kafka.maxRatePerPartition"
    for partition in (0, 1):
        program.broker.produce(topic, [b"%d" % n for n in range(5)], partition=partition)
    program.sc._jsc.sc().conf().set(setting, "2")
    try:
        (batch, *_) = program.start([topic]).step(3)
    finally:
        program.sc._jsc.sc().conf().remove(setting)
    assert [len(values) for values in program.seen] == [4, 4, 2]
    assert batch.num_records == 4
    assert f"topic: {topic}\tpartition: 1\toffsets: 0 to 2" in batch.inputs[0].metadataDescription()


def test_group_offsets_follow_the_commits(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"a", b"b"])
    program.start([topic], conf={"group.id": f"group-{topic}"}).step(2)
    program.stop()
    consumer = Consumer({**program.broker.conf, "group.id": f"group-{topic}"})
    places = [TopicPartition(topic, 0)]
    assert eventually(lambda: consumer.committed(places, 30)[0].offset == 2)
    consumer.close()


def test_records_that_are_gone_end_the_program(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"a"])
    program.start([topic]).step()
    program.stop()
    program.broker.produce(topic, [b"b", b"c"])
    program.broker.delete_records(topic, before=2)
    stepper = program.start([topic])
    with pytest.raises(KafkaDataLossError, match=rf"records \[1, 2\) of {topic}/0 were deleted"):
        stepper.step()


def test_a_pattern_is_no_name(program: Program) -> None:
    with pytest.raises(ConfigError, match=r"\['clicks-\.\*'\] is not possible.*re\.compile"):
        program.start(["clicks-.*"])


def test_a_pattern_that_matches_nothing_yet_is_told(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.start(re.compile("none-.*")).step()
    assert "no topic matches re.compile('none-.*') yet" in caplog.text


def test_an_unknown_topic_ends_the_start(program: Program) -> None:
    with pytest.raises(KafkaError, match=r"Unknown topic.*create the topic.*topic=nowhere"):
        program.start(["nowhere"])


def test_offsets_of_another_input_end_the_start(program: Program, topic: str) -> None:
    program.start([topic]).step()
    program.stop()
    entry = program.location / "offsets" / "0"
    (program.location / "offsets" / ".0.crc").unlink()
    lines = entry.read_text().splitlines()
    entry.write_text("\n".join([*lines[:2], '{"numbers":7}']))
    with pytest.raises(RecoveryMismatchError, match="in the place of the offsets of Kafka topics"):
        program.start([topic])


def test_a_secret_is_in_no_file(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"a"])
    conf = {"ssl.key.password": "tell-nobody"}
    program.start([topic], conf=conf, recover="graph", define=print_all).step()
    program.stop()
    files = [path for path in program.location.rglob("*") if path.is_file()]
    assert any(path.name.startswith("checkpoint-") for path in files)
    assert [path for path in files if b"tell-nobody" in path.read_bytes()] == []


def print_all(stream: DStream) -> None:
    stream.pprint()
