"""``penstock.streaming.kafka``: programs of PySpark 2 over a real broker."""

from __future__ import annotations

import inspect
from itertools import count
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.errors import ConfigError, KafkaDataLossError
from penstock.streaming import DStream, StreamingContext
from penstock.streaming.kafka import (
    Broker as BrokerAddress,
)
from penstock.streaming.kafka import (
    KafkaMessageAndMetadata,
    KafkaUtils,
    OffsetRange,
    TopicAndPartition,
    utf8_decoder,
)
from tests.kafka.broker import Broker
from tests.kafka.program import Program

pytestmark = [pytest.mark.spark, pytest.mark.slow]
_number = count()


@pytest.fixture
def topic(broker: Broker) -> str:
    return broker.create_topic(f"utils-{next(_number)}", partitions=2)


def old_params(broker: Broker, **more: Any) -> dict[str, Any]:
    return {"metadata.broker.list": broker.address, **more}


def test_parameters_are_those_of_pyspark_2() -> None:
    direct = inspect.signature(KafkaUtils.createDirectStream).parameters
    assert list(direct) == [
        "ssc",
        "topics",
        "kafkaParams",
        "fromOffsets",
        "keyDecoder",
        "valueDecoder",
        "messageHandler",
    ]
    rdd = inspect.signature(KafkaUtils.createRDD).parameters
    assert list(rdd) == [
        "sc",
        "kafkaParams",
        "offsetRanges",
        "leaders",
        "keyDecoder",
        "valueDecoder",
        "messageHandler",
    ]
    for found in (direct, rdd):
        assert found["keyDecoder"].default is found["valueDecoder"].default is utf8_decoder


def test_a_direct_stream_has_pairs_and_offset_ranges(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"a", None], key=b"k")
    program.broker.produce(topic, ["\xe4".encode()], partition=1)
    seen: list[Any] = []
    ranges: list[list[OffsetRange]] = []

    def keep(rdd: RDD[Any]) -> RDD[Any]:
        ranges.append(rdd.offsetRanges())  # type: ignore[attr-defined]
        return rdd

    def define(stream: DStream) -> None:
        stream.transform(keep).foreachRDD(lambda rdd: seen.append(sorted(rdd.collect(), key=str)))
        stream.foreachRDD(lambda rdd: ranges.append(rdd.offsetRanges()))  # type: ignore[attr-defined]

    def make(ssc: StreamingContext) -> DStream:
        params = old_params(program.broker, **{"auto.offset.reset": "smallest"})
        return KafkaUtils.createDirectStream(ssc, [topic], params)

    program.run(make, define).step(2)
    assert seen == [[("k", "a"), ("k", None), (None, "\xe4")], []]
    first = [OffsetRange(topic, 0, 0, 2), OffsetRange(topic, 1, 0, 1)]
    empty = [OffsetRange(topic, 0, 2, 2), OffsetRange(topic, 1, 1, 1)]
    assert ranges == [first, first, empty, empty]


def test_a_direct_stream_from_offsets_with_a_handler(program: Program, topic: str) -> None:
    program.broker.produce(topic, [b"a", b"b"], key=b"k")
    seen: list[Any] = []

    def handle(m: KafkaMessageAndMetadata) -> Any:
        return m.topic, m.partition, m.offset, m.key, m.message

    def make(ssc: StreamingContext) -> DStream:
        return KafkaUtils.createDirectStream(
            ssc,
            [topic],
            old_params(program.broker),
            fromOffsets={TopicAndPartition(topic, 0): 1},
            valueDecoder=lambda value: len(value),
            messageHandler=handle,
        )

    program.run(make, lambda s: s.foreachRDD(lambda rdd: seen.extend(rdd.collect()))).step()
    assert seen == [(topic, 0, 1, "k", 1)]


def test_an_rdd_of_ranges(sc: SparkContext, broker: Broker, topic: str) -> None:
    broker.produce(topic, [b"0", b"1", b"2"])
    broker.produce(topic, [b"3"], partition=1)
    wanted = [OffsetRange(topic, 0, 1, 3), OffsetRange(topic, 1, 0, 1)]
    leaders = {TopicAndPartition(topic, 0): BrokerAddress("localhost", 9092)}
    rdd = KafkaUtils.createRDD(sc, old_params(broker), wanted, leaders)
    assert rdd.collect() == [(None, "1"), (None, "2"), (None, "3")]
    assert rdd.offsetRanges() == wanted  # type: ignore[attr-defined]
    rdd = KafkaUtils.createRDD(sc, old_params(broker), wanted, messageHandler=lambda m: m.offset)
    assert rdd.collect() == [1, 2, 0]
    with pytest.raises(KafkaDataLossError, match=rf"{topic}/0 holds \[0, 3\), and not all of"):
        KafkaUtils.createRDD(sc, old_params(broker), [OffsetRange(topic, 0, 1, 4)])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"zookeeper.connect": "z:2181"}, r"name no brokers \(zookeeper.connect cannot stand"),
        (
            {"metadata.broker.list": "b:1", "auto.offset.reset": "none"},
            "auto.offset.reset is 'none",
        ),
        ({"metadata.broker.list": "b:1", "num.consumer.fetchers": "2"}, "refuses its settings"),
    ],
)
def test_parameters_that_cannot_be_used(
    sc: SparkContext, params: dict[str, str], message: str
) -> None:
    ssc = StreamingContext(sc, 1)
    with pytest.raises(ConfigError, match=message):
        KafkaUtils.createDirectStream(ssc, ["t"], params)


def test_values_print_as_in_pyspark_2() -> None:
    assert str(OffsetRange("t", 1, 2, 3)) == "OffsetRange(topic: t, partition: 1, range: [2 -> 3]"
    assert str(TopicAndPartition("t", 1)) == "TopicAndPartition(topic: t, partition: 1)"
    assert len({TopicAndPartition("t", 1), TopicAndPartition("t", 1)}) == 1
    assert utf8_decoder(None) is None
