"""A producer to a real broker's topic, whose partitions both receivers share as one group.

Records have offsets, so each arrives exactly once, wherever its partition is read.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from confluent_kafka import Producer

from tests.background import background
from tests.faults.sources.source import PAUSE_S, Balance, ReceiverSpec, Source, exactly_once
from tests.kafka.broker import Broker
from tests.kafka.receiving import HASTY
from tests.waiting import WAIT_S

_TOPIC = "numbers"
_PARTITIONS = 4
_A_BURST = 20


class KafkaSource(Source):
    has_connections = False  # clients go to the address that the broker names, past any proxy

    def __init__(self, root: Path) -> None:
        self._broker = Broker(root / "kafka")
        self._sent: list[str] = []

    def receiver(self, place: str) -> ReceiverSpec:
        conf = {**self._broker.conf, **HASTY, "group.id": "storm"}
        options = [each for key, value in conf.items() for each in ("--conf", f"{key}={value}")]
        return ReceiverSpec(
            "KafkaReceiver",
            {"topics": _TOPIC, "conf": conf, "starting": "earliest"},
            ("kafka", _TOPIC, "--starting", "earliest", *options),
        )

    @contextmanager
    def running(self) -> Iterator[None]:
        with self._broker.running():
            self._broker.create_topic(_TOPIC, _PARTITIONS)
            yield

    @contextmanager
    def sending(self) -> Iterator[None]:
        producer = Producer({**self._broker.conf, "enable.idempotence": True, "log_level": 0})
        with background(lambda end: self._produce(end, producer)):
            yield
        assert producer.flush(WAIT_S) == 0

    def cut(self) -> None:
        raise NotImplementedError("its connections are not cut; members leave all the time")

    def balance(self, seen: Counter[str]) -> Balance:
        return exactly_once(self._sent, seen)

    def _produce(self, end: Event, producer: Producer) -> None:
        for number in itertools.count():
            if end.wait(PAUSE_S):
                return
            for n in range(_A_BURST):
                value = f"{number}:{n}"
                producer.produce(_TOPIC, value, partition=n % _PARTITIONS)
                self._sent.append(value)
            producer.poll(0)
