"""kill -9 of a program and of its broker, while records come: each record once in the sink."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaException, Producer

from tests.background import background
from tests.faults.driver import Driver
from tests.faults.ledger import judge
from tests.kafka.broker import LIBRARIES, Broker

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PROGRAM = Path(__file__).with_name("kafka_program.py")
PARTITIONS = 3


class Sender:
    """Sends numbered records, also while the broker is away, until it is told to end."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        # Retries must not double records, or the program would be blamed.
        self._producer = Producer({**broker.conf, "enable.idempotence": True, "log_level": 0})
        self.sent = 0
        self.partitions = PARTITIONS

    @contextmanager
    def running(self) -> Iterator[None]:
        with background(self._send):
            yield
        assert self._producer.flush(120) == 0

    def _send(self, end: Event) -> None:
        while not end.wait(0.01):
            for _ in range(10):
                value = f"line {self.sent}"
                partition = self.sent % self.partitions
                try:
                    self._producer.produce(self._topic, value, value, partition=partition)
                except KafkaException:  # a partition so new that the client does not know it
                    self._producer.produce(self._topic, value, value, partition=0)
                self.sent += 1
            self._producer.poll(0)


def test_driver_and_broker_are_killed(tmp_path: Path) -> None:
    if LIBRARIES is None:
        pytest.skip("NOT PROVED: there are no libraries of a Kafka broker (scripts/kafka.sh)")
    broker = Broker(tmp_path / "broker")  # of its own: others' tests need theirs alive
    sink = tmp_path / "sink"
    args = [broker.address, "numbers", str(tmp_path / "checkpoint"), str(sink)]
    seed = random.randrange(10**6)
    moments = random.Random(seed)
    try:
        broker.start()
        broker.create_topic("numbers", PARTITIONS)
        sender = Sender(broker, "numbers")
        with Driver(PROGRAM, args, tmp_path / "stderr.txt") as driver:
            with sender.running():
                for fault in ("broker", "driver"):
                    driver.wait_records(50)
                    time.sleep(moments.random())
                    if fault == "driver":
                        driver.restart()
                    else:
                        broker.kill()
                        time.sleep(moments.random())
                        broker.start()
                driver.wait_records(50)
            driver.run_until(lambda: not judge(sender.sent, sink).lost, more=1)
    finally:
        broker.remove()
    assert judge(sender.sent, sink).ok, f"seed {seed}: {judge(sender.sent, sink)}"
