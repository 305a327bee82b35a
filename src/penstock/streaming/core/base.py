"""A stream as the engine uses it: one RDD for each batch, kept for as long as it may be needed.

Invariants:

1. For one batch, a stream always returns the same RDD.
2. A stream's RDD of time t is dropped only when no batch up to ``t + remember_ms`` runs any more.
   Parents remember at least as long as their children, and longer by the width of a window.
3. Only planned batches have RDDs: no operation reads records that no batch took.
4. An RDD that is written to the checkpoint location belongs to the stream and was created for that
   batch: its files are deleted with it, and its lineage is cut, so the program must not use it
   otherwise.

Source: ``org.apache.spark.streaming.dstream.DStream``.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pyspark import RDD, StorageLevel
from pyspark.sql import DataFrame

from penstock.errors import ConfigError, StreamingError
from penstock.streaming.core.checkpoint_data import DStreamCheckpointData

if TYPE_CHECKING:
    from penstock.streaming.core.program import Program
    from penstock.streaming.core.rdd_checkpoints import RddCheckpoints

_LEAST_CHECKPOINT_MS = 10_000
"""The default minimum time between RDD checkpoints; as in Spark."""

_computing = threading.RLock()
"""Guards the RDDs of all streams, which planning and ``slice`` use concurrently."""


class BaseDStream(ABC):
    """A stream as the engine uses it; ``DStream`` adds the users' methods."""

    must_checkpoint = False
    """Whether each RDD is derived from the previous one, so that lineage grows unless it is cut.

    A restart needs the RDD checkpoints of such a stream (``restarts_from``).
    """

    needs_missed_ticks = False
    """Whether a missed tick needs a batch of its own if this stream has records then.

    True for windows, whose RDD is made of several batches: each record is in all its windows.
    """

    is_written_by_executors = False
    """Whether tasks write for it to the checkpoint location, besides RDDs (``writes_rdds``)."""

    def __init__(self, ssc: Program) -> None:
        ssc.check_extensible("add a stream")
        self._ssc: Program | None = ssc
        self._generated: dict[int, RDD[Any]] = {}
        self._persisted: set[int] = set()
        self._zero_ms: int | None = None
        self.storage_level: StorageLevel | None = None
        """The storage level of this stream's RDDs, None if they are not persisted."""
        self.checkpoint_ms: int | None = None
        """The time between RDDs that are written to the checkpoint location, None for none."""
        self.checkpoint_data: DStreamCheckpointData | None = None
        """The RDDs that were written to the checkpoint location, None if none are."""
        self.remember_ms = 0
        """The time for which an RDD is kept after its batch's time."""

    # -- implemented by each kind of stream --

    @property
    @abstractmethod
    def parents(self) -> tuple[BaseDStream, ...]:
        """The streams that this one is computed from."""

    @abstractmethod
    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return this stream's RDD for the batch of that time; None without one."""

    @property
    def slide_ms(self) -> int:
        """The time between this stream's RDDs."""
        return self.parents[0].slide_ms

    @property
    def parent_remember_ms(self) -> int:
        """The time for which this stream needs its parents to keep their RDDs."""
        return self.remember_ms

    def compute_dataframe(self, time_ms: int) -> DataFrame:
        """Return the batch of that time as a DataFrame with native columns."""
        raise self.no_columns()

    def no_columns(self) -> ConfigError:
        """Return the error of a call that needs columns, where ``has_columns`` is False."""
        return ConfigError(
            f"{type(self).__name__} has no columns",
            operation="foreachBatch",
            hint="call foreachBatch on a receiver's or Kafka's stream, or a union of such; use "
            "foreachRDD on streams of Python objects",
        )

    def has_columns(self) -> bool:
        """Whether ``compute_dataframe`` works for this stream."""
        return False

    @property
    def writes_rdds(self) -> bool:
        """Whether this stream writes RDDs to the checkpoint location."""
        return self.must_checkpoint or self.checkpoint_ms is not None

    # -- the context --

    @property
    def ssc(self) -> Program:
        """The context that this stream belongs to."""
        if self._ssc is None:
            raise StreamingError(
                "this stream was read from a graph checkpoint and is not attached to a context yet",
                operation="use stream",
                hint="attach the graph to a StreamingContext first",
            )
        return self._ssc

    def attach(self, ssc: Program) -> None:
        """Set the context of an unpickled stream."""
        self._ssc = ssc

    # -- retention --

    def needed_after(self, done_ms: int) -> int:
        """Return the time after which this stream's RDDs may be needed again.

        This applies when batches up to ``done_ms`` are done, and considers this stream only.
        """
        return done_ms - self.remember_ms if self.remember_ms > self.slide_ms else done_ms

    def restarts_from(self, after_ms: int, done_ms: int) -> int:
        """Return the time from which a restart recomputes this stream."""
        return after_ms

    def parents_needed_after(self, after_ms: int, done_ms: int) -> int:
        """Return ``needed_after`` of the parents, if it is ``after_ms`` for this stream."""
        return self.restarts_from(after_ms, done_ms)

    def times_with_records(self, parents_ms: Sequence[int], until_ms: int) -> Sequence[int]:
        """Return the times, up to ``until_ms``, at which this stream has records; ascending.

        Parents have records at ``parents_ms``; for an input these are the times at which it takes
        records.
        """
        return parents_ms

    # -- durations --

    def initialize(self, zero_ms: int) -> None:
        """Start: this stream's RDDs are at multiples of its slide after ``zero_ms``."""
        self._zero_ms = zero_ms
        if self.must_checkpoint and self.checkpoint_ms is None:
            slides = -(-_LEAST_CHECKPOINT_MS // self.slide_ms)
            self.checkpoint_ms = slides * self.slide_ms
        # Two checkpoints, so that the older one can be deleted when nothing depends on it any more.
        checkpoints_ms = 0 if self.must_checkpoint else 2 * (self.checkpoint_ms or 0)
        self.remember(max(self.slide_ms, checkpoints_ms))

    def remember(self, duration_ms: int) -> None:
        """Keep RDDs for that time, or longer if a longer time was set before."""
        self.remember_ms = max(self.remember_ms, duration_ms)

    def is_time_valid(self, time_ms: int) -> bool:
        """Whether this stream has an RDD for a batch of that time.

        Raises:
            StreamingError: the context was not started, or no output depends on this stream.
        """
        zero_ms = self._initialized_at()
        # A stream without windows has every batch, also one that was planned under another batch
        # interval and runs again.
        if self.slide_ms == self.ssc.graph.batch_interval_ms:
            return True
        return (time_ms - zero_ms) % self.slide_ms == 0

    # -- RDDs --

    def get_or_compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the RDD for the batch of that time; always the same one."""
        with _computing:
            if time_ms not in self._generated:
                rdd = self.compute(time_ms) if self.is_time_valid(time_ms) else None
                if rdd is None:
                    return None
                self._keep(time_ms, rdd)
            return self._generated[time_ms]

    def times_between(self, after_ms: int, until_ms: int) -> list[int]:
        """Return this stream's times with ``after_ms < time <= until_ms``, ascending."""
        return list(filter(self.is_time_valid, self.ssc.graph.times_between(after_ms, until_ms)))

    def rdds_between(self, after_ms: int, until_ms: int) -> list[RDD[Any]]:
        """Return the RDDs of all batches with ``after_ms < time <= until_ms``, oldest first."""
        found = map(self.get_or_compute, self.times_between(after_ms, until_ms))
        return [rdd for rdd in found if rdd is not None]

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """Drop the RDDs that are not needed when no batch up to that time runs in this run.

        RDDs after ``needed_after_ms`` may be asked for again.
        """
        self._forget(ended_ms - self.remember_ms)

    def open_rdd_checkpoints(self, place: RddCheckpoints) -> None:
        """Set the location of RDD checkpoints; called before the stream is used."""
        if self.checkpoint_data is not None:
            self.checkpoint_data.open(place)

    def restore_checkpoint_data(self, done_ms: int, planned_ms: int) -> None:
        """Load the RDD checkpoints of an earlier run.

        Batches up to ``done_ms`` are committed, and the offset log has those up to ``planned_ms``.
        """
        if self.checkpoint_data is not None:
            self._generated.update(self.checkpoint_data.restore_all())

    def clear_checkpoint_data(self, done_ms: int, needed_after_ms: int) -> None:
        """Delete data that is not needed when batches up to ``done_ms`` are done.

        RDD checkpoints after ``needed_after_ms`` are kept, because they are still needed.
        """
        if self.checkpoint_data is not None:
            until_ms = min(needed_after_ms, done_ms - self.remember_ms)
            self.checkpoint_data.cleanup_until(until_ms)

    def _initialized_at(self) -> int:
        if self._zero_ms is None:
            raise StreamingError(
                f"{type(self).__name__} has not been initialized",
                operation="compute stream",
                hint="start the context first; a stream that no output depends on has no RDDs",
            )
        return self._zero_ms

    def _forget(self, until_ms: int) -> None:
        with _computing:
            for time_ms in [t for t in self._generated if t <= until_ms]:
                self._release(time_ms, self._generated.pop(time_ms))

    def _keep(self, time_ms: int, rdd: RDD[Any]) -> None:
        due = self._is_checkpoint_due(time_ms)
        if due:
            rdd = self._own(rdd)
        if self.storage_level is not None and not rdd.is_cached:
            rdd.persist(self.storage_level)
            self._persisted.add(time_ms)
        if due and self.checkpoint_data is not None:
            rdd.checkpoint()
            self.checkpoint_data.expect(time_ms, rdd)
        self._generated[time_ms] = rdd

    def _own(self, rdd: RDD[Any]) -> RDD[Any]:
        """Return a new RDD of the same records."""
        # A lambda, because it is sent to executors by value: they never import penstock.streaming.
        return rdd.mapPartitions(lambda records: records, preservesPartitioning=True)

    def _release(self, time_ms: int, rdd: RDD[Any]) -> None:
        if time_ms in self._persisted:  # RDDs that the program cached stay cached
            self._persisted.remove(time_ms)
            if self.ssc.settings.unpersist:
                rdd.unpersist()

    def _is_checkpoint_due(self, time_ms: int) -> bool:
        if self.checkpoint_data is None or self.checkpoint_ms is None:
            return False
        return self.checkpoint_data.is_due(time_ms, self._initialized_at(), self.checkpoint_ms)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ssc": None, "_generated": {}, "_persisted": set()}
