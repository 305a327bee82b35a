"""DStream: a sequence of RDDs, one for each batch, and the kinds of streams made from others.

A DStream holds its parents and its function on their RDDs, but no SparkContext, so the graph of all
DStreams of a program can be pickled. Names and meaning are those of ``pyspark.streaming``.

    BaseDStream <- BasicOperations <- PairOperations <- WindowOperations <- DStream
    (the engine's side)                                                       |
        TransformedDStream (<- UnionDStream), WindowedDStream, inputs,
        RddStateDStream (<- StateDStream, ReducedWindowDStream)

Source: ``pyspark.streaming.DStream``, ``org.apache.spark.streaming.dstream.DStream``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce
from types import GenericAlias
from typing import TYPE_CHECKING, Any

from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame

from penstock.errors import ConfigError
from penstock.streaming.core import transforms
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.operations.window_times import window_ends
from penstock.streaming.operations.windows import WindowOperations

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program


class DStream(WindowOperations):
    """A stream of RDDs, one for each batch. Created by a StreamingContext or another DStream."""

    def __class_getitem__(cls, record: Any) -> GenericAlias:
        """Accept ``DStream[str]`` in annotations at run time, as ``pyspark.streaming`` does."""
        return GenericAlias(cls, record)

    @property
    @abstractmethod
    def parents(self) -> tuple[DStream, ...]:
        """The streams that this one is computed from."""

    def union(self, other: DStream) -> DStream:
        """Return a stream with the records of both.

        Raises:
            ConfigError: the two have different slide durations or contexts.
        """
        return UnionDStream(self.ssc, (self, other))

    def _derive(
        self, operation: str, function: Callable[..., RDD[Any]], *others: DStream, **bound: Any
    ) -> DStream:
        return TransformedDStream(self.ssc, operation, (self, *others), partial(function, **bound))

    def _transformed(
        self, operation: str, func: Callable[..., RDD[Any]], *others: DStream
    ) -> DStream:
        return transformed(self.ssc, operation, (self, *others), func)

    def _windowed(self, window_ms: int, slide_ms: int) -> DStream:
        return WindowedDStream(self, window_ms, slide_ms)


class TransformedDStream(DStream):
    """A stream whose RDD is a function of its parents' RDDs of the same batch.

    Raises:
        ConfigError: the parents have different contexts or slide durations.
    """

    def __init__(
        self,
        ssc: Program,
        operation: str,
        parents: tuple[DStream, ...],
        function: Callable[..., RDD[Any]],
    ) -> None:
        super().__init__(ssc)
        _check_match(ssc, operation, parents)
        self.operation = operation
        self._parents = parents
        self._function = function

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The streams that this one is computed from."""
        return self._parents

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the function of the parents' RDDs; None if one of them has none."""
        rdds = [parent.get_or_compute(time_ms) for parent in self._parents]
        return None if any(rdd is None for rdd in rdds) else self._function(time_ms, *rdds)


class UnionDStream(TransformedDStream):
    """All records of several streams; has columns if each of them has."""

    def __init__(self, ssc: Program, parents: tuple[DStream, ...]) -> None:
        super().__init__(ssc, "union", parents, transforms.union)

    def has_columns(self) -> bool:
        """Whether all parents have columns."""
        return all(parent.has_columns() for parent in self.parents)

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the union of the parents' DataFrames, by column name."""
        frames = [parent.compute_dataframe(time_ms) for parent in self.parents]
        return reduce(DataFrame.unionByName, frames)


class SlidingWindows(BaseDStream):
    """The part of a stream over windows of its parent that holds their width and slide."""

    needs_missed_ticks = True
    _window_ms: int
    _slide_ms: int

    @property
    def slide_ms(self) -> int:
        """The time between windows."""
        return self._slide_ms

    @property
    def parent_remember_ms(self) -> int:
        """One window longer than the retention of this stream."""
        return self.remember_ms + self._window_ms

    @property
    def records_last_ms(self) -> int:
        """The time for which a record of the parent affects windows."""
        return self._window_ms

    def times_with_records(self, parents_ms: Sequence[int], until_ms: int) -> Sequence[int]:
        """Return the ends of the windows that hold records of the parent."""
        return window_ends(
            parents_ms,
            window_ms=self.records_last_ms,
            slide_ms=self._slide_ms,
            zero_ms=self._initialized_at(),
            until_ms=until_ms,
        )


class WindowedDStream(SlidingWindows, DStream):
    """All records of the batches in each window. Several windows use a batch, so it is persisted.

    Source: ``org.apache.spark.streaming.dstream.WindowedDStream``.
    """

    def __init__(self, parent: DStream, window_ms: int, slide_ms: int) -> None:
        super().__init__(parent.ssc)
        self._parent = parent
        self._window_ms = window_ms
        self._slide_ms = slide_ms
        if parent.storage_level is None:
            parent.persist(StorageLevel.MEMORY_ONLY)

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The parent stream of the windows."""
        return (self._parent,)

    def parents_needed_after(self, after_ms: int, done_ms: int) -> int:
        """Return the beginning of the oldest window."""
        return after_ms - self._window_ms

    def persist(self, storageLevel: StorageLevel) -> WindowedDStream:
        """Persist the parent's RDDs, of which windows are unions; see ``DStream.persist``."""
        self._parent.persist(storageLevel)
        return self

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the union of the parent's RDDs in the window."""
        rdds = self._parent.rdds_between(time_ms - self._window_ms, time_ms)
        return transforms.unite(rdds) if rdds else None

    def has_columns(self) -> bool:
        """Whether the parent has columns."""
        return self._parent.has_columns()

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the union of the parent's DataFrames in the window."""
        times = self._parent.times_between(time_ms - self._window_ms, time_ms)
        return reduce(DataFrame.unionByName, map(self._parent.compute_dataframe, times))


def transformed(
    ssc: Program,
    operation: str,
    parents: tuple[DStream, ...],
    func: Callable[..., RDD[Any]],
) -> DStream:
    """Return the stream of a user's function of RDDs, with the batch time first if it takes it."""
    if not callable(func):
        raise ConfigError(
            f"{func!r} is not a function",
            operation=operation,
            hint="give a function of the RDDs, or of the batch time and the RDDs",
        )
    timed = transforms.takes_time(func, len(parents))
    function = transforms.transform_at if timed else transforms.transform
    return TransformedDStream(ssc, operation, parents, partial(function, func=func))


def _check_match(ssc: Program, operation: str, parents: tuple[DStream, ...]) -> None:
    if any(parent.ssc is not ssc for parent in parents):
        raise ConfigError(
            f"{operation} got streams of different contexts",
            operation=operation,
            hint="create all streams with one StreamingContext",
        )
    slides = sorted({parent.slide_ms for parent in parents})
    if len(slides) > 1:
        raise ConfigError(
            f"the streams of {operation} should have same slide duration, and have "
            f"{' and '.join(f'{slide} ms' for slide in slides)}",
            operation=operation,
            hint="give the windows among them the same slideDuration",
        )
