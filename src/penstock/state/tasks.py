"""The functions of Spark's tasks on state. Classes, so that they pickle by name; without Spark.

Each is called with its partition's number and records, as ``RDD.mapPartitionsWithIndex`` does.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.state.keys import decode_key
from penstock.state.partition import Partition
from penstock.state.state_file import CODECS
from penstock.state.update import StateFunction, update_partition
from penstock.state.versions import PartitionVersion, read_version
from penstock.storage import Storage
from penstock.workers import whole_input

__all__ = ["LoadTask", "OutputsTask", "SnapshotTask", "StatePlace", "UpdateTask"]

_Pairs = Iterable[tuple[Any, Any]]


@dataclass(frozen=True)
class StatePlace:
    """The location of an operator's state, and the run of the driver."""

    storage: Storage
    operator: str
    run: str
    codec: str = CODECS[0]
    """How files are compressed."""

    def partition(self, number: int) -> Partition:
        """Return one of its partitions."""
        return Partition(self.storage, self.operator, number, self.run, codec=self.codec)

    def tip(self, number: int, time_ms: int) -> str | None:
        """Return a partition's entry in the version of that time; raises as ``read_version``."""
        return read_version(self.storage, self.operator, time_ms).tips[number]


@dataclass(frozen=True)
class LoadTask:
    """Writes version 0 from the pairs of an initial state."""

    place: StatePlace
    touched_ms: int

    def __call__(self, number: int, pairs: _Pairs) -> Iterator[PartitionVersion]:
        """Yield this partition's entry of version 0."""
        tip = self.place.partition(number).load(whole_input(pairs), self.touched_ms)
        yield PartitionVersion(tip, None if tip is None else self.touched_ms)


@dataclass(frozen=True)
class UpdateTask:
    """Updates a partition from the version before a batch to that of the batch.

    ``oldest_tips`` are the tips of the oldest version that is still needed.
    """

    place: StatePlace
    function: StateFunction
    time_ms: int
    timeout_ms: int | None
    tips: tuple[str | None, ...]
    oldest_tips: tuple[str | None, ...]

    def __call__(self, number: int, records: _Pairs) -> Iterator[PartitionVersion]:
        """Yield this partition's entry of the batch's version."""
        partition = self.place.partition(number)
        with partition.open(self.tips[number]) as database:
            if self.timeout_ms is not None:
                database.index_times()
            update = update_partition(
                whole_input(records),
                database,
                self.function,
                time_ms=self.time_ms,
                timeout_ms=self.timeout_ms,
            )
            tip = partition.commit(database, update, self.time_ms, self.oldest_tips[number])
        yield PartitionVersion(tip, update.oldest_ms)


@dataclass(frozen=True)
class OutputsTask:
    """Yields the records that the function returned in a batch."""

    place: StatePlace
    time_ms: int

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[Any]:
        """Return them."""
        tip = self.place.tip(number, self.time_ms)
        return self.place.partition(number).outputs(tip, self.time_ms)


@dataclass(frozen=True)
class SnapshotTask:
    """Yields all keys and their state after a batch."""

    place: StatePlace
    time_ms: int

    def __call__(self, number: int, nothing: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        """Yield pairs of key and state."""
        tip = self.place.tip(number, self.time_ms)
        with self.place.partition(number).open(tip) as database:
            for key, entry in database.rows():
                yield decode_key(key), pickle.loads(entry.value)
