"""A program over a real broker's topics, stepped by a manual clock, started again and again."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark import RDD, SparkContext

from penstock.journal.losses.loss_log import read_losses, source_folder
from penstock.storage import attach_storage
from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.kafka.broker import Broker


class Program:
    """A program over topics, which can be started again and again on one location."""

    def __init__(self, sc: SparkContext, broker: Broker, location: Path) -> None:
        self.sc = sc
        self.broker = broker
        self.location = location
        self.clock = ManualClock(1_000_000)
        self.seen: list[list[bytes | None]] = []
        self.ssc: StreamingContext | None = None

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

        return self.run(make, define or self.collect, recover)

    def run(
        self,
        make: Callable[[StreamingContext], DStream],
        define: Callable[[DStream], None],
        recover: Any = "program",
    ) -> Stepper:
        self.stop()

        def create() -> StreamingContext:
            return StreamingContext(self.sc, 1, clock=self.clock)

        self.ssc = StreamingContext.getOrCreate(str(self.location), create, recover=recover)
        define(make(self.ssc))
        stepper = Stepper(self.ssc, self.clock)
        self.ssc.start()
        return stepper

    def collect(self, stream: DStream) -> None:
        stream.foreachRDD(self.note)

    def note(self, rdd: RDD[Any]) -> None:
        self.seen.append(sorted(r.value for r in rdd.collect()))

    def stop(self) -> None:
        if self.ssc is not None:
            self.ssc.stop(stopSparkContext=False)
            self.ssc = None

    def offsets(self, batch_id: int) -> Any:
        return json.loads((self.location / "offsets" / str(batch_id)).read_text().splitlines()[2])

    def losses(self) -> list[tuple[str, int, int]]:
        """Return the loss log: partition, and offsets."""
        found = read_losses(attach_storage(str(self.location)), source_folder("numbers"))
        return [
            (loss.records.partition, loss.records.start_offset, loss.records.end_offset)
            for loss in found
        ]
