"""A driver without Spark over the sink's protocol, which tests kill at each step, or run twice.

Its checkpoint location is a folder with offsets/N and commits/N; batch N has the records
``N-0 .. N-(RECORDS-1)``, spread over its partitions.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import KafkaError as ClientError

from penstock.kafka.sink import (
    Destination,
    Encoder,
    Outgoing,
    SinkBatches,
    transactions,
    write_partition,
)
from tests.kafka.broker import Broker

RECORDS = 6


def records_of(batch_id: int, partitions: int, index: int, topic: str) -> Iterator[Outgoing]:
    """Return the records of a partition of a batch, one by one."""
    for number in range(index, RECORDS, partitions):
        yield from Encoder(topic)([f"{batch_id}-{number}"])


class SinkDriver:
    """Runs batches of one output, on the folder of a location."""

    def __init__(self, conf: dict[str, Any], topic: str, folder: Path, partitions: int = 2) -> None:
        self.topic = topic
        self.folder = folder
        self.partitions = partitions
        self.sink = SinkBatches(conf, topic, "location", topic)
        folder.mkdir(exist_ok=True)

    def start(self) -> None:
        """Open the sink, as a program's start does."""
        planned = self._path("offset", self._next()).exists()
        self.sink.open([self._next()] if planned and self._path("sink", 0).exists() else [])
        self._path("sink", 0).touch()

    def run(self, until: int) -> None:
        """Run all batches before ``until`` that are not committed."""
        self.start()
        while (batch_id := self._next()) < until:
            again = self._path("offset", batch_id).exists()
            self._path("offset", batch_id).touch()
            self.write(batch_id, again=again)
            self._path("commit", batch_id).touch()
        self.sink.close()

    def write(self, batch_id: int, *, again: bool) -> None:
        """Write a batch."""
        attempt = self.sink.begin(batch_id, self.partitions, may_be_written=again)
        others = [index for index in range(self.partitions) if index not in attempt.done]
        for index in [*sorted(attempt.done), *others]:
            self.task(batch_id, attempt.number, index, is_done=index in attempt.done)

    def task(self, batch_id: int, attempt: int, index: int, *, is_done: bool = False) -> int:
        """Write a partition of a batch."""
        to: Destination = self.sink.destination(batch_id)
        records = records_of(batch_id, self.partitions, index, self.topic)
        return write_partition(to, attempt, index, records, is_done=is_done)

    def _next(self) -> int:
        return len(list(self.folder.glob("commit-*")))

    def _path(self, kind: str, batch_id: int) -> Path:
        return self.folder / f"{kind}-{batch_id}"


def committed(broker: Broker, topic: str) -> Counter[str]:
    """Return the values in a topic, as a plain read_committed consumer has them."""
    conf = {"group.id": "judge", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({**broker.conf, **conf, "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    ended, found = set[int](), Counter[str]()
    while len(ended) < len(partitions):
        for message in consumer.consume(10_000, 0.05):
            error, value = message.error(), message.value()
            if error is None and value is not None:
                found[value.decode()] += 1
            elif error is not None and error.code() == ClientError._PARTITION_EOF:
                ended.add(message.partition())
    consumer.close()
    return found


def expected(batches: int) -> Counter[str]:
    """Return the values that the batches have in all."""
    return Counter(f"{batch}-{number}" for batch in range(batches) for number in range(RECORDS))


def run_killed(
    conf: dict[str, Any], topic: str, folder: str, partitions: int, until: int, request: int
) -> None:
    """Run a driver that is killed before its nth request to the brokers, if it makes so many."""
    requests = transactions._patiently
    made = count(1)

    def killed(*args: Any) -> Any:
        if next(made) == request:
            os.kill(os.getpid(), signal.SIGKILL)
        return requests(*args)

    transactions._patiently = killed
    SinkDriver(conf, topic, Path(folder), partitions).run(until)
