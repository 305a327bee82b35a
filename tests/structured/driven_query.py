"""A query over topics without Spark: its order of calls, and its logs, in this process."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem
from pyspark.sql.streaming.datasource import ReadLimit

from penstock.structured.kafka.source import KafkaBatchReader, KafkaDataSource, KafkaStreamReader
from penstock.structured.session import QueryFacts, Session, bound_to, read_by, tell_query
from tests.kafka.broker import Broker

__all__ = ["DrivenQuery"]


@dataclass
class DrivenQuery:
    """A query with one checkpoint, which may be started again and again."""

    broker: Broker
    topic: str
    location: Path
    options: dict[str, str] = field(default_factory=dict)
    seen: list[list[bytes | None]] = field(default_factory=list)
    """The values of each batch that had records."""
    place: str = "0"
    """That of the source in the query, as Spark's driver tells it."""
    before_commit: Callable[[int], None] = lambda batch_id: None

    def given(self) -> dict[str, str]:
        """Return the options of the query."""
        subscription = {} if "subscribePattern" in self.options else {"subscribe": self.topic}
        brokers = {"kafka.bootstrap.servers": self.broker.address}
        return {**brokers, **subscription, "startingOffsets": "earliest", **self.options}

    def reader(self) -> KafkaStreamReader:
        """Return the reader that a run of the query plans with."""
        MemoryFileSystem.store.clear()  # a run plans in a process of its own
        source = self._source(self.given())
        found = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
        found.initialOffset()  # raises if the query is refused
        assert isinstance(found, KafkaStreamReader)
        return found

    def batch_reader(self, options: dict[str, str]) -> KafkaBatchReader:
        """Return the reader of ``spark.read`` with these options."""
        source = self._source({"kafka.bootstrap.servers": self.broker.address, **options})
        reader = source.reader(source.schema())
        assert isinstance(reader, KafkaBatchReader)
        return reader

    def read(self, options: dict[str, str]) -> list[bytes]:
        """Return the values that a batch read has, sorted."""
        reader = self.batch_reader(options)
        batches = (batch for task in reader.partitions() for batch in reader.read(task))
        return sorted(value for batch in batches for value in batch["value"].to_pylist())

    def drain(self) -> list[list[bytes | None]]:
        """Run until all is read, as Trigger.AvailableNow does; return the batches of this run."""
        before = len(self.seen)
        reader = self.reader()
        try:
            reader.prepareForTriggerAvailableNow()
            limit = reader.getDefaultReadLimit()
            end = self.resume(reader)
            while (wanted := self._json(reader.latestOffset(end, limit))) != end:
                self.run(reader, end, wanted)
                end = wanted
        finally:
            reader.stop()
        return self.seen[before:]

    def poll(self, reader: KafkaStreamReader, limit: ReadLimit | None = None) -> bool:
        """Run a batch if there is one; return whether there was."""
        end = self.resume(reader)
        wanted = self._json(reader.latestOffset(end, limit or reader.getDefaultReadLimit()))
        if wanted == end:
            return False
        self.run(reader, end, wanted)
        return True

    def resume(self, reader: KafkaStreamReader) -> Any:
        """Run the batch that is planned and not committed; return where the next one begins."""
        if (newest := self.newest()) < 0:
            return self._json(reader.initialOffset())
        if not self._path("commits", newest).exists():
            start = self.offsets(newest - 1) if newest else self._json(reader.initialOffset())
            self._process(reader, newest, start, self.offsets(newest))
        return self.offsets(newest)

    def run(self, reader: KafkaStreamReader, start: Any, end: Any) -> None:
        """Plan a batch, and run it."""
        batch_id = self.newest() + 1
        self._write("offsets", batch_id, end)
        if batch_id:
            reader.commit(start)
        self._process(reader, batch_id, start, end)

    def run_nothing(self, end: Any) -> None:
        """Leave a batch that is done, read nothing and ends there, after those there are."""
        batch_id = self.newest() + 1
        self._write("offsets", batch_id, end)
        for each in (batch_id - 1, batch_id):
            self._write("commits", each, {})

    def offsets(self, batch_id: int) -> Any:
        """Return the offset of a batch in the query's log."""
        return json.loads(self._path("offsets", batch_id).read_text())

    def newest(self) -> int:
        """Return the newest batch that is planned."""
        found = (self.location / "offsets").glob("*")
        return max((int(path.name) for path in found), default=-1)

    def uncommit(self, batch_id: int) -> None:
        """Leave what a kill before the batch's commit would have left."""
        self._path("commits", batch_id).unlink()

    def _process(self, reader: KafkaStreamReader, batch_id: int, start: Any, end: Any) -> None:
        tasks = pickle.loads(pickle.dumps(reader.partitions(start, end)))
        # Spark makes that of tasks in another process than the one that plans.
        source = self._source(self.given())
        task_reader = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
        found = [
            v for task in tasks for b in task_reader.read(task) for v in b["value"].to_pylist()
        ]
        if found:
            self.seen.append(sorted(found, key=lambda value: value or b""))
        self.before_commit(batch_id)
        self._write("commits", batch_id, {})

    def _source(self, options: dict[str, str]) -> KafkaDataSource:
        rates = self.location.parent / "rates"
        rates.mkdir(mode=0o700, exist_ok=True)
        facts = QueryFacts("driven", str(self.location), 100, self.place)
        tell_query(str(rates), read_by(options), facts)
        return bound_to(KafkaDataSource, Session(str(rates), 2, 100))(options)

    def _write(self, folder: str, batch_id: int, value: Any) -> None:
        (self.location / folder).mkdir(parents=True, exist_ok=True)
        self._path(folder, batch_id).write_text(json.dumps(value))

    def _path(self, folder: str, batch_id: int) -> Path:
        return self.location / folder / f"{batch_id}"

    @staticmethod
    def _json(value: Any) -> Any:
        return json.loads(json.dumps(value))
