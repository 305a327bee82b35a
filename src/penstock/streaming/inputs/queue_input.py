"""An input over a list of RDDs in the driver's memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark import RDD

from penstock.errors import StreamingError
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputDStream

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program


class QueueInputDStream(InputDStream):
    """RDDs from a list that the program holds, one a batch or all at once; for tests.

    Its data is in memory only: an interrupted batch cannot run again after a restart. Source:
    ``org.apache.spark.streaming.dstream.QueueInputDStream``.
    """

    kind = "queue"
    reports_input = False  # as in Spark
    merges_ticks = False  # one RDD a tick, as in Spark
    is_volatile = True

    def __init__(
        self,
        ssc: Program,
        rdds: Sequence[RDD[Any]],
        one_at_a_time: bool,
        default: RDD[Any] | None,
    ) -> None:
        super().__init__(ssc)
        self._queue = rdds
        self._one_at_a_time = one_at_a_time
        self._default = default

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        """Return the number of RDDs taken: one more, or all there are."""
        taken = self.partitions(start).get("rdds", 0)
        step = 1 if self._one_at_a_time else len(self._queue)
        return {self.name: {"rdds": max(taken, min(taken + step, len(self._queue)))}}

    def can_read_again(self, wanted: SourceRange) -> bool:
        """Whether the program's list still has them."""
        return self.partitions(wanted.end).get("rdds", 0) <= len(self._queue)

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        """Return the union of the RDDs taken, the default when there are none."""
        start = self.partitions(wanted.start).get("rdds", 0)
        end = self.partitions(wanted.end).get("rdds", 0)
        if end > len(self._queue):
            raise StreamingError(
                "the RDDs of an unfinished batch of a queueStream were lost with the process",
                operation="recover batch",
                ids={"stream": self.name},
                hint="queueStream is for tests; use a receiver's stream where batches must survive",
            )
        rdds = list(self._queue[start:end])
        sc = self.ssc.sparkContext
        if not rdds:
            # Spark's empty default has one partition, so that operations on partitions see one.
            return sc.parallelize([], 1) if self._default is None else self._default
        return rdds[0] if len(rdds) == 1 else sc.union(rdds)

    def __getstate__(self) -> dict[str, Any]:
        # RDDs belong to one SparkContext: a recovered queue is empty.
        return {**super().__getstate__(), "_queue": [], "_default": None}
