"""DStream: a sequence of RDDs, one for each batch, and the operations on it.

A DStream knows its parents and what it does to their RDDs; it holds no SparkContext, so the graph
of all DStreams of a program can be pickled. Names and meaning are those of ``pyspark.streaming``.

Source: ``pyspark.streaming.DStream``, ``org.apache.spark.streaming.dstream.DStream``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark import RDD
from pyspark.sql import DataFrame

from penstock.errors import ConfigError, StreamingError
from penstock.streaming import transforms
from penstock.streaming.outputs import ForEachBatch, ForEachRDD, print_records

if TYPE_CHECKING:
    from penstock.streaming.context import StreamingContext

__all__ = ["DStream", "TransformedDStream", "UnionDStream", "transformed"]


class DStream(ABC):
    """A stream of RDDs, one for each batch. Made by a StreamingContext or by another DStream."""

    def __init__(self, ssc: StreamingContext) -> None:
        ssc.check_changeable("add a stream")
        self._ssc: StreamingContext | None = ssc
        self._generated: dict[int, RDD[Any]] = {}

    # -- what a kind of stream implements --

    @property
    @abstractmethod
    def parents(self) -> tuple[DStream, ...]:
        """The streams that this one is computed from."""

    @abstractmethod
    def compute(self, time_ms: int) -> RDD[Any]:
        """Return this stream's RDD for the batch of that time."""

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the batch of that time as a DataFrame with native columns."""
        raise ConfigError(
            f"{type(self).__name__} has no columns",
            operation="foreachBatch",
            hint="call foreachBatch on a receiver's stream or a union of such; use foreachRDD here",
        )

    def has_columns(self) -> bool:
        """Whether ``compute_dataframe`` works for this stream."""
        return False

    # -- the engine's side --

    @property
    def ssc(self) -> StreamingContext:
        """The context that this stream belongs to."""
        if self._ssc is None:
            raise StreamingError(
                "this stream was read from a graph checkpoint and belongs to no context yet",
                operation="use stream",
                hint="attach the graph to a StreamingContext first",
            )
        return self._ssc

    def attach(self, ssc: StreamingContext) -> None:
        """Give a stream that was unpickled its context."""
        self._ssc = ssc

    def get_or_compute(self, time_ms: int) -> RDD[Any]:
        """Return the RDD for the batch of that time, the same one each time it is asked for."""
        if time_ms not in self._generated:
            self._generated[time_ms] = self.compute(time_ms)
        return self._generated[time_ms]

    def clear_metadata(self, before_ms: int) -> None:
        """Forget the RDDs of batches before that time."""
        for time_ms in [t for t in self._generated if t < before_ms]:
            del self._generated[time_ms]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ssc": None, "_generated": {}}

    # -- operations --

    def context(self) -> StreamingContext:
        """Return the StreamingContext of this stream."""
        return self.ssc

    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> DStream:
        """Return a stream with ``f`` applied to each record."""
        return self._derive("map", transforms.map_records, func=f, keeps=preservesPartitioning)

    def flatMap(
        self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream:
        """Return a stream with all records that ``f`` gives for each record."""
        return self._derive("flatMap", transforms.flat_map, func=f, keeps=preservesPartitioning)

    def filter(self, f: Callable[[Any], bool]) -> DStream:
        """Return a stream of the records that ``f`` is true of."""
        return self._derive("filter", transforms.filter_records, func=f)

    def mapPartitions(
        self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream:
        """Return a stream with ``f`` applied to the iterator of each partition of each RDD."""
        return self._derive(
            "mapPartitions", transforms.map_partitions, func=f, keeps=preservesPartitioning
        )

    def mapValues(self, f: Callable[[Any], Any]) -> DStream:
        """Return a stream of pairs with ``f`` applied to each value."""
        return self._derive("mapValues", transforms.map_values, func=f)

    def reduceByKey(
        self, func: Callable[[Any, Any], Any], numPartitions: int | None = None
    ) -> DStream:
        """Return a stream of pairs with each batch's values of a key merged by ``func``."""
        return self._derive(
            "reduceByKey", transforms.reduce_by_key, func=func, partitions=numPartitions
        )

    def count(self) -> DStream:
        """Return a stream with the number of records of each batch."""
        return self._derive("count", transforms.count)

    def union(self, other: DStream) -> DStream:
        """Return a stream with the records of both."""
        return UnionDStream(self.ssc, (self, other))

    def transform(self, func: Callable[..., RDD[Any]]) -> DStream:
        """Return a stream of ``func(rdd)``, or ``func(time, rdd)`` when it takes two arguments."""
        return transformed(self.ssc, "transform", (self,), func)

    # -- outputs --

    def foreachRDD(self, func: Callable[..., Any]) -> None:
        """Call ``func(rdd)``, or ``func(time, rdd)`` when it takes two, for each batch."""
        self.ssc.graph.add_output(ForEachRDD(self, func))

    def foreachBatch(self, func: Callable[[DataFrame, int], Any]) -> None:
        """Call ``func(df, batch_id)`` for each batch, with the records as a DataFrame.

        The records stay in Parquet and in the JVM; nothing passes through Python unless ``func``
        does so. After a failure the same batch comes again with the same id and the same records,
        so a sink that replaces what it wrote under that id has each record exactly once.

        Raises:
            ConfigError: this stream has no columns (it holds Python objects).
        """
        self.ssc.graph.add_output(ForEachBatch(self, func))

    def pprint(self, num: int = 10) -> None:
        """Print the first ``num`` records of each batch."""
        self.foreachRDD(partial(print_records, num=num))

    def _derive(self, operation: str, function: Callable[..., RDD[Any]], **bound: Any) -> DStream:
        return TransformedDStream(self.ssc, operation, (self,), partial(function, **bound))


class TransformedDStream(DStream):
    """A stream whose RDD is a function of its parents' RDDs of the same batch."""

    def __init__(
        self,
        ssc: StreamingContext,
        operation: str,
        parents: tuple[DStream, ...],
        function: Callable[..., RDD[Any]],
    ) -> None:
        super().__init__(ssc)
        self.operation = operation
        self._parents = parents
        self._function = function

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The streams that this one is computed from."""
        return self._parents

    def compute(self, time_ms: int) -> RDD[Any]:
        """Return the function of the parents' RDDs."""
        return self._function(time_ms, *(p.get_or_compute(time_ms) for p in self._parents))


class UnionDStream(TransformedDStream):
    """All records of several streams; has columns when each of them has."""

    def __init__(self, ssc: StreamingContext, parents: tuple[DStream, ...]) -> None:
        if any(p.ssc is not ssc for p in parents):
            raise ConfigError(
                "streams of different contexts cannot be united",
                operation="union",
                hint="make all streams with one StreamingContext",
            )
        super().__init__(ssc, "union", parents, transforms.union)

    def has_columns(self) -> bool:
        """Whether all parents have columns."""
        return all(parent.has_columns() for parent in self.parents)

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the union of the parents' DataFrames, by column name."""
        first, *rest = (parent.compute_dataframe(time_ms) for parent in self.parents)
        for frame in rest:
            first = first.unionByName(frame)
        return first


def transformed(
    ssc: StreamingContext,
    operation: str,
    parents: tuple[DStream, ...],
    func: Callable[..., RDD[Any]],
) -> DStream:
    """Return the stream of a user's function of RDDs, with the batch time first if it takes it."""
    if not callable(func):
        raise ConfigError(
            f"{func!r} is no function",
            operation=operation,
            hint="give a function of the RDDs, or of the batch time and the RDDs",
        )
    timed = transforms.takes_time(func, len(parents))
    function = transforms.transform_at if timed else transforms.transform
    return TransformedDStream(ssc, operation, parents, partial(function, func=func))
