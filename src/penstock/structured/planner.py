"""What a source does to plan the batches of one query: the contract of a source.

A planner lives in the process beside the driver that Spark starts for a query and a source, and
ends with it. Its offsets are flat maps, ``{partition: end}``, of which ``encode`` makes the offset
JSON in the query's checkpoint.

    begin -> (latest -> [offsets/N] -> commit(end of N-1) -> partitions)*

What Spark does not promise, seen in its order of calls:

- After a restart the batch that was not committed is planned first, by ``partitions`` alone.
- The last batch's ``commit`` comes when the next batch is planned, so after a restart if there was
  one; never if the query does not come back. It may come twice.
- ``begin`` is called while the query has no batch in its log, any number of times. It has to be the
  same each time, also after a kill.
- ``close`` may never be called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from penstock.model import Offsets
from penstock.rate import Lane


class StreamPlanner(ABC):
    """Plans batches. Used by one thread."""

    @abstractmethod
    def encode(self, offsets: Offsets) -> dict[str, Any]:
        """Return the offset JSON of an offset map."""

    @abstractmethod
    def decode(self, offset: dict[str, Any]) -> Offsets:
        """Return the offset map of an offset JSON.

        Raises:
            ConfigError: it is not an offset of this source.
        """

    @abstractmethod
    def begin(self) -> Offsets:
        """Return where the query's first batch begins; durable when this returns."""

    @abstractmethod
    def latest(self, start: Offsets) -> Offsets:
        """Return the end of a batch from ``start`` on that takes all there is."""

    @abstractmethod
    def snapshot(self) -> Offsets:
        """Return the ends of all there is now, as the last offsets of Trigger.AvailableNow."""

    def starts(self, start: Offsets, end: Offsets) -> Offsets:
        """Return from where on a batch takes records that count for its limits."""
        return start

    def lane(self, partition: str) -> Lane:
        """Return the lane of a partition; see penstock.rate.range_limit."""
        return partition, 0

    @abstractmethod
    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the tasks that read a batch, any number of times."""

    @abstractmethod
    def commit(self, end: Offsets) -> None:
        """Note that the query needs no records before ``end`` any more, save to go back."""

    def close(self) -> None:  # noqa: B027 (not all hold anything)
        """Release what is held."""
