"""A program over a real broker's topics, stepped by a manual clock, started again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import RDD, SparkContext

from penstock.journal.losses.loss_log import read_losses, source_folder
from penstock.storage import attach_storage
from penstock.streaming import DStream, StreamingContext
from penstock.testing.stepper import Stepper
from tests.kafka.broker import Broker
from tests.streaming.runs import Runs


class Program(Runs):
    def __init__(self, sc: SparkContext, broker: Broker, location: Path) -> None:
        super().__init__(sc, location)
        self.broker = broker
        self.seen: list[list[bytes | None]] = []

    def start(
        self,
        topics: Any,
        *,
        conf: Mapping[str, Any] | None = None,
        define: Callable[[DStream], None] | None = None,
        recover: Any = "program",
        **options: Any,
    ) -> Stepper:
        def make(ssc: StreamingContext) -> DStream:
            chosen = {"starting": "earliest", "name": "numbers", **options}
            return ssc.kafkaStream(topics, {**self.broker.conf, **(conf or {})}, **chosen)

        self.stop()
        consume = define or self.collect
        return self.start_program(lambda ssc: consume(make(ssc)), recover=recover)

    def collect(self, stream: DStream) -> None:
        stream.foreachRDD(self.note)

    def note(self, rdd: RDD[Any]) -> None:
        self.seen.append(sorted(r.value for r in rdd.collect()))

    def losses(self) -> list[tuple[str, int, int]]:
        """Return the loss log: partition, and offsets."""
        found = read_losses(attach_storage(str(self.location)), source_folder("numbers"))
        return [
            (loss.records.partition, loss.records.start_offset, loss.records.end_offset)
            for loss in found
        ]
