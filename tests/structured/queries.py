"""Queries over a journal, run until they have read what there is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from penstock.journal import JournalStream
from penstock.structured import register
from tests.waiting import WAIT_S


@dataclass
class Query:
    """A query with one checkpoint, which may be started again and again."""

    spark: SparkSession
    stream: JournalStream
    location: Path
    options: dict[str, str] = field(default_factory=dict)
    seen: list[list[Any]] = field(default_factory=list)
    """The records of each batch that ran."""
    ids: list[int] = field(default_factory=list)
    progress: list[dict[str, Any]] = field(default_factory=list)
    """Of the last run."""
    on_batch: Callable[[DataFrame, int], None] = lambda frame, batch_id: None

    def frame(self, **more: str) -> DataFrame:
        """Return the stream that the query reads."""
        register(self.spark)
        options = {
            "journal": self.stream.storage.url,
            "stream": self.stream.name,
            "consumer": "report",
            **self.options,
            **more,
        }
        return self.spark.readStream.format("penstock").options(**options).load()

    def drain(self, **trigger: Any) -> list[list[Any]]:
        """Run until all is read; return the batches of this run."""
        before = len(self.seen)
        writer = self.frame().writeStream.foreachBatch(self.take)
        query = (
            writer.option("checkpointLocation", str(self.location))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        try:
            assert query.awaitTermination(int(WAIT_S)), "the query did not end"
        finally:
            self.progress = [json.loads(each.json) for each in query.recentProgress]
            query.stop()
        return self.seen[before:]

    def start(self, interval: str) -> StreamingQuery:
        """Start it with a trigger interval."""
        writer = self.frame().writeStream.foreachBatch(self.take)
        location = writer.option("checkpointLocation", str(self.location))
        return location.trigger(processingTime=interval).start()

    @property
    def consumer(self) -> str:
        """Its consumer's name."""
        return self.options.get("consumer", "report")

    def take(self, frame: DataFrame, batch_id: int) -> None:
        self.on_batch(frame, batch_id)
        self.ids.append(batch_id)
        self.seen.append(sorted(tuple(row) if len(row) > 1 else row[0] for row in frame.collect()))
