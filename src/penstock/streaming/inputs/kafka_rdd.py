"""RDDs of topics' records, which know their offset ranges, as those of PySpark 2 did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pyspark import RDD, SparkContext
from pyspark.core.rdd import PipelinedRDD

from penstock.kafka import KafkaRange
from penstock.kafka.pyspark2 import OffsetRange

__all__ = ["KafkaRDD"]


class KafkaRDD(PipelinedRDD[KafkaRange, Any]):
    """The records of ranges, read when the tasks run.

    Args:
        sc: runs the tasks.
        tasks: what each of them reads.
        read: makes records of ranges, in a task.
        ranges: what ``offsetRanges`` says.

    Source: ``pyspark.streaming.kafka.KafkaRDD``.
    """

    def __init__(
        self,
        sc: SparkContext,
        tasks: Sequence[KafkaRange],
        read: Callable[[Iterable[KafkaRange]], Iterator[Any]],
        ranges: Sequence[OffsetRange],
    ) -> None:
        held: RDD[KafkaRange] = sc.parallelize(tasks, len(tasks)) if tasks else sc.emptyRDD()
        # A lambda, because it is sent to executors by value: they never import penstock.streaming.
        super().__init__(held, lambda _, some: read(some))
        self._ranges = list(ranges)

    def offsetRanges(self) -> list[OffsetRange]:
        """Return the offsets of each partition that the RDD holds; their records may be fewer."""
        return list(self._ranges)
