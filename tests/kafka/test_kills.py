"""kill -9 of a program and of its broker, while records come: each record is copied once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.kafka.sink import failures
from penstock.kafka.sink.failures import KafkaStuckError
from tests.background import background
from tests.faults.driver import Driver
from tests.kafka.broker import Broker
from tests.kafka.sink_driver import SinkDriver, committed, expected
from tests.seeds import storm_seed
from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

PARTITIONS = 3


class Sender:
    """Sends numbered records, also while the broker is away, until it is told to end."""

    def __init__(self, broker: Broker, topic: str, form: str = "line %d") -> None:
        self._topic = topic
        self._form = form
        # Retries must not double records, or the program would be blamed.
        self._producer = Producer({**broker.conf, "enable.idempotence": True, "log_level": 0})
        self.sent = 0
        self.partitions = PARTITIONS

    @contextmanager
    def running(self) -> Iterator[None]:
        with background(self._send):
            yield
        assert self._producer.flush(WAIT_S) == 0

    def _send(self, end: Event) -> None:
        while not end.wait(0.01):
            for _ in range(10):
                value = self._form % self.sent
                partition = self.sent % self.partitions
                try:
                    self._producer.produce(self._topic, value, value, partition=partition)
                except KafkaException:  # a partition so new that the client does not know it
                    self._producer.produce(self._topic, value, value, partition=0)
                self.sent += 1
            self._producer.poll(0)


PROGRAM = """
from penstock.streaming import StreamingContext
from tests.driver_program import new_spark, run

sc, conf, folder = new_spark("local[2,8]"), {conf!r}, {folder!r}

ssc = StreamingContext(sc, 0.5); ssc.checkpoint(folder)
records = ssc.kafkaStream(["in"], {{**conf, "isolation.level": "read_committed"}}, starting="earliest", name="numbers")
records.to_kafka("out", conf, key=lambda r: r.key, value=lambda r: r.value, delivery="exactly_once", name="copy")

run(ssc)
"""  # noqa: E501 - as it stands


@pytest.mark.spark
def test_driver_and_broker_are_killed(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "broker", is_killed=True)  # of its own: others need theirs alive
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(conf=broker.conf, folder=str(tmp_path / "checkpoint")))
    seed = storm_seed()
    moments = random.Random(seed)
    with broker.running():
        for topic in ("in", "out"):
            broker.create_topic(topic, PARTITIONS)
        sender = Sender(broker, "in")
        with Driver(program, [], tmp_path / "stderr.txt") as driver:
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
            driver.run_until(lambda: committed(broker, "out").total() >= sender.sent, more=1)
        assert committed(broker, "out") == Counter(f"line {n}" for n in range(sender.sent)), (
            f"seed {seed}"
        )


def test_producers_that_are_kept_find_a_broker_that_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """librdkafka's would wait for ever for the coordinator that it knew."""

    def never(transaction: str, waited_s: float) -> KafkaStuckError:
        pytest.fail(f"the client of {transaction} did not return within {waited_s} s")

    broker = Broker(tmp_path / "broker", is_killed=True)
    monkeypatch.setattr(failures, "stuck", never)
    with broker.running():
        topic = broker.create_topic("out", 2)
        driver = SinkDriver(broker.conf, topic, tmp_path / "location")
        driver.start()
        driver.write(0, again=False)
        broker.kill()
        broker.start()
        driver.write(1, again=False)
        driver.sink.close()
        assert committed(broker, topic) == expected(2)
