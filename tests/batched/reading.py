"""An independent reader of a topic."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.kafka.broker import Broker


def read_topic(broker: Broker, topic: str, partition: int = 0) -> list[bytes | None]:
    """Return the values of the committed records that a partition has now."""
    conf = {"group.id": "check", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({**broker.conf, **conf, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[bytes | None] = []
    try:
        while True:
            for message in consumer.consume(1000, 0.05):
                error = message.error()
                if error is None:
                    values.append(message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    return values
    finally:
        consumer.close()
