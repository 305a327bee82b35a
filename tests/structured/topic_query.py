"""Queries over topics of a real broker, run until they have read what there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.structured import register
from tests.kafka.broker import Broker
from tests.waiting import WAIT_S

__all__ = ["TopicQuery"]


@dataclass
class TopicQuery:
    """A query with one checkpoint, which may be started again and again."""

    spark: SparkSession
    broker: Broker
    topic: str
    location: Path
    options: dict[str, str] = field(default_factory=dict)
    seen: list[list[bytes | None]] = field(default_factory=list)
    """The values of each batch that had records."""
    on_batch: Callable[[DataFrame, int], None] = lambda frame, batch_id: None

    def given(self, **more: str) -> dict[str, str]:
        """Return the options of a read."""
        topics = {"kafka.bootstrap.servers": self.broker.address, "subscribe": self.topic}
        return {**topics, **self.options, **more}

    def frame(self, **more: str) -> DataFrame:
        register(self.spark)
        options = {"startingOffsets": "earliest", **self.given(**more)}
        return self.spark.readStream.format("penstock-kafka").options(**options).load()

    def read(self, **more: str) -> DataFrame:
        register(self.spark)
        return self.spark.read.format("penstock-kafka").options(**self.given(**more)).load()

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self.frame().writeStream.foreachBatch(self._take)
        return (
            writer.option("checkpointLocation", str(self.location))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )

    def drain(self) -> list[list[bytes | None]]:
        """Run until all is read; return the batches of this run."""
        before = len(self.seen)
        query = self.start()
        try:
            assert query.awaitTermination(int(WAIT_S)), "the query did not end"
        finally:
            query.stop()
        return self.seen[before:]

    def offsets(self, batch_id: int) -> Any:
        """Return the offset of a batch in the query's log."""
        return json.loads((self.location / "offsets" / f"{batch_id}").read_text().splitlines()[-1])

    def newest(self) -> int:
        """Return the newest batch."""
        return max(int(path.name) for path in (self.location / "offsets").glob("[0-9]*"))

    def uncommit(self, batch_id: int) -> None:
        """Leave what a kill before the batch's commit would have left."""
        for name in (f"{batch_id}", f".{batch_id}.crc"):
            (self.location / "commits" / name).unlink()

    def _take(self, frame: DataFrame, batch_id: int) -> None:
        self.on_batch(frame, batch_id)
        if values := sorted((row.value for row in frame.collect()), key=lambda v: v or b""):
            self.seen.append(values)
