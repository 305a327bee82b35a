"""A topic of a real broker, a place for checkpoints, and the programs that a test starts."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import Any

from penstock.batched import Stream, from_kafka_batched
from tests.kafka.broker import Broker
from tests.waiting import eventually

from .reading import read_topic

_number = count()


class Site:
    """A broker's topic, a place for checkpoints, and the programs that a test starts."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.broker = broker
        self.path = folder / "checkpoints"
        self.topic = broker.create_topic(f"batched-{next(_number)}", partitions=2)
        self.out = broker.create_topic(f"{self.topic}-out")
        self.started: list[Stream] = []

    def source(self, *topics: str, **options: Any) -> Stream:
        conf = {**self.broker.conf, "auto.offset.reset": "earliest"}
        options = {"checkpoint_path": self.path, "poll_interval": "0.05s", **options}
        return from_kafka_batched(list(topics) or [self.topic], conf, **options)

    def start(self, stream: Stream) -> Stream:
        self.started.append(stream)
        stream.start()
        return stream

    def stop(self) -> None:
        for stream in self.started:
            stream.stop()

    def written(self) -> list[bytes | None]:
        """What is in the output topic now."""
        return read_topic(self.broker, self.out)

    def checkpoint(self, topic: str | None = None) -> Any:
        """The newest checkpoint, None if there is none."""
        numbers = [int(each.stem) for each in (self.path / (topic or self.topic)).glob("*.txt")]
        if not numbers or max(numbers) == 0:
            return None
        text = (self.path / (topic or self.topic) / f"{max(numbers)}.txt").read_text()
        return {partition: last for partition, last in json.loads(text).items() if last >= 0}

    def wait(self, checkpoint: Any, topic: str | None = None) -> None:
        """Wait until that is the newest checkpoint."""

        def is_there() -> bool:
            for stream in self.started:
                if not stream._program.is_running:  # type: ignore[union-attr]
                    stream.awaitTermination()  # tells why
            return bool(self.checkpoint(topic) == checkpoint)

        assert eventually(is_there), self.checkpoint(topic)
