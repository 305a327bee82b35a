"""``pyspark.streaming.kafka`` as PySpark had it until 3.0: the same names, parameters and results.

from penstock.streaming.kafka import KafkaUtils, TopicAndPartition

Differences are listed in docs/migrating.md. New programs use ``ssc.kafkaStream``.

Source: PySpark 2.4, ``pyspark.streaming.kafka``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark import RDD, SparkContext

from penstock.errors import ConfigError
from penstock.kafka import ClientConf, KafkaRange
from penstock.kafka.client_conf import check_kafka_client
from penstock.kafka.pyspark2 import (
    Broker,
    Decoder,
    KafkaMessageAndMetadata,
    OffsetRange,
    ToMessage,
    ToPair,
    TopicAndPartition,
    utf8_decoder,
)
from penstock.model import shown
from penstock.streaming.operations.dstream import DStream

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.inputs.kafka_input import Starting

__all__ = [
    "Broker",
    "KafkaMessageAndMetadata",
    "KafkaUtils",
    "OffsetRange",
    "TopicAndPartition",
    "utf8_decoder",
]

_log = logging.getLogger(__name__)
_STARTING: dict[str, Starting] = {
    "smallest": "earliest",
    "earliest": "earliest",
    "largest": "latest",
    "latest": "latest",
}
_NO_EFFECT = frozenset(
    [
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "consumer.timeout.ms",
        "refresh.leader.backoff.ms",
    ]
)
"""Settings of Kafka 0.8's consumer that the direct stream did not use either."""

Handler = Callable[[KafkaMessageAndMetadata], Any]


class KafkaUtils:
    """Makes streams and RDDs of Kafka topics."""

    @staticmethod
    def createDirectStream(
        ssc: StreamingContext,
        topics: str | Sequence[str],
        kafkaParams: Mapping[str, Any],
        fromOffsets: Mapping[TopicAndPartition, int] | None = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler | None = None,
    ) -> DStream:
        """Return the stream of a topic's records, as pairs of key and value, each exactly once.

        ``offsetRanges()`` of its RDDs, in ``foreachRDD`` and ``transform``, has their offsets.

        Args:
            ssc: the context.
            topics: their names; a str is one.
            kafkaParams: ``metadata.broker.list`` or ``bootstrap.servers``, ``auto.offset.reset``
                (``largest``, the default, or ``smallest``), and librdkafka's settings.
            fromOffsets: where the partitions begin; one that is not named begins at its earliest
                offset.
            keyDecoder: makes a key of its bytes, or of None.
            valueDecoder: makes a value of its bytes, or of None.
            messageHandler: makes a record of a ``KafkaMessageAndMetadata`` instead of the pair.

        Raises:
            ConfigError: an argument is wrong, or confluent-kafka is not installed.
        """
        check_kafka_client("createDirectStream")
        from penstock.streaming.inputs.kafka_input import KafkaInputDStream

        topics = [topics] if isinstance(topics, str) else list(topics)
        conf, starting = _split_params(kafkaParams)
        if fromOffsets:
            starting = _starting(topics, fromOffsets)
        convert = _converter(keyDecoder, valueDecoder, messageHandler)
        return KafkaInputDStream(ssc, topics, conf, starting=starting, convert=convert)

    @staticmethod
    def createRDD(
        sc: SparkContext,
        kafkaParams: Mapping[str, Any],
        offsetRanges: Sequence[OffsetRange],
        leaders: Mapping[TopicAndPartition, Broker] | None = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler | None = None,
    ) -> RDD[Any]:
        """Return an RDD of the records of offset ranges, as pairs of key and value.

        Args:
            sc: runs the tasks.
            kafkaParams: as in ``createDirectStream``.
            offsetRanges: what to read.
            leaders: not needed: the brokers know which of them leads a partition.
            keyDecoder: as in ``createDirectStream``.
            valueDecoder: as in ``createDirectStream``.
            messageHandler: as in ``createDirectStream``.

        Raises:
            ConfigError: an argument is wrong, or confluent-kafka is not installed.
            KafkaDataLossError: a partition does not hold its range.
            KafkaError: the brokers do not answer, or refuse.
        """
        check_kafka_client("createRDD")
        from penstock.kafka.decoding import CELL
        from penstock.kafka.offsets import split_ranges
        from penstock.kafka.reader import check_settings
        from penstock.kafka.tasks import ReadRecords
        from penstock.kafka.topics import check_held
        from penstock.streaming.inputs.kafka_rdd import KafkaRDD

        conf, _ = _split_params(kafkaParams)
        settings = ClientConf(conf).settings()
        check_settings(settings)
        wanted = [_range(each) for each in offsetRanges]
        check_held(settings, wanted)
        convert = _converter(keyDecoder, valueDecoder, messageHandler)
        tasks = split_ranges([each for each in wanted if each.count], cell=CELL)
        return KafkaRDD(sc, tasks, ReadRecords(settings, convert=convert), offsetRanges)


def _to_pair(key: Decoder, value: Decoder) -> ToPair:
    for what, found in (("keyDecoder", key), ("valueDecoder", value)):
        if not callable(found):
            raise _wrong(f"{what} {shown(found)} is not a function", "give a function of one value")
    return ToPair(key, value)


def _converter(key: Decoder, value: Decoder, handler: Handler | None) -> ToPair | ToMessage:
    pair = _to_pair(key, value)
    if handler is None:
        return pair
    if not callable(handler):
        raise _wrong(
            f"messageHandler {shown(handler)} is not a function", "give a function of a message"
        )
    return ToMessage(key, value, handler)


def _split_params(params: Mapping[str, Any]) -> tuple[dict[str, Any], Starting]:
    """Return librdkafka's settings, and where a stream begins."""
    if not isinstance(params, Mapping):
        raise _wrong("kafkaParams should be dict", "give settings by their names")
    reset = str(params.get("auto.offset.reset", "largest")).lower()
    if reset not in _STARTING:
        raise _wrong(f"auto.offset.reset is {shown(reset)}", "give 'largest' or 'smallest'")
    unused = sorted(k for k in params if k in _NO_EFFECT or str(k).startswith("zookeeper."))
    if not params.get("metadata.broker.list") and not params.get("bootstrap.servers"):
        what = f" ({', '.join(unused)} cannot stand for them)" if unused else ""
        raise _wrong(
            f"kafkaParams name no brokers{what}",
            "give metadata.broker.list or bootstrap.servers: 'host:9092,host2:9092'",
        )
    if unused:
        _log.warning("These settings have no effect on a direct stream: %s", ", ".join(unused))
    left = {k: v for k, v in params.items() if k not in unused and k != "auto.offset.reset"}
    return left, _STARTING[reset]


def _starting(
    topics: Sequence[str], offsets: Mapping[TopicAndPartition, int]
) -> dict[str, dict[int, int]]:
    starting: dict[str, dict[int, int]] = {}
    for place, offset in offsets.items():
        if not isinstance(place, TopicAndPartition):
            raise _wrong(f"fromOffsets names {shown(place)}", "its keys are TopicAndPartition")
        starting.setdefault(place._topic, {})[place._partition] = int(offset)
    if set(starting) != set(topics):
        raise _wrong(
            f"fromOffsets is of {', '.join(sorted(starting))}, and topics are "
            f"{', '.join(sorted(topics))}",
            "give offsets of each of the topics, and of no other",
        )
    return starting


def _range(wanted: OffsetRange) -> KafkaRange:
    if not isinstance(wanted, OffsetRange):
        raise _wrong(f"offsetRanges holds {shown(wanted)}", "give a list of OffsetRange")
    start, end = wanted.fromOffset, wanted.untilOffset
    if not 0 <= start <= end:
        raise _wrong(f"{wanted} is not ascending", "offsets start at 0, and the end is exclusive")
    return KafkaRange(wanted.topic, wanted.partition, start, end)


def _wrong(what: str, hint: str) -> ConfigError:
    return ConfigError(what, operation="KafkaUtils", hint=hint)
