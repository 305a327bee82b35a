"""A Kafka broker for a benchmark: the tests' own, real and on loopback, with topics to read."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from confluent_kafka import Producer

if TYPE_CHECKING:
    from tests.kafka.broker import Broker

__all__ = ["KEY_BYTES", "VALUE_BYTES", "connector_jars", "fill_topic", "kafka_broker"]

KEY_BYTES, VALUE_BYTES = 8, 100
_ROOT = Path(__file__).parents[2]
_PROGRESS = 1_000


@contextmanager
def kafka_broker() -> Iterator[Broker | None]:
    """Run a broker; yield None where its libraries are not there (scripts/kafka.sh)."""
    sys.path.append(str(_ROOT))
    from tests.kafka.broker import LIBRARIES, Broker

    if LIBRARIES is None:
        yield None
        return
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
        Broker(Path(folder, "broker")).running() as broker,
    ):
        yield broker


def connector_jars() -> list[Path]:
    """Return the jars of Spark's own connector, none where they are not there."""
    done = sorted(_ROOT.glob(".tools/kafka-connector/*/complete"))
    return sorted(done[-1].parent.glob("*.jar")) if done else []


def fill_topic(broker: Broker, topic: str, partitions: int, records: int) -> None:
    """Create a topic with so many records, spread evenly, without compression."""
    broker.create_topic(topic, partitions=partitions)
    producer = Producer({**broker.conf, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for number in range(records):
        value, key = b"%0*d" % (VALUE_BYTES, number), b"%0*d" % (KEY_BYTES, number)
        producer.produce(topic, value, key, partition=number % partitions)
        if number % _PROGRESS == 0:
            producer.poll(0)
            while len(producer) > 500_000:
                producer.poll(0.1)
    producer.flush()
