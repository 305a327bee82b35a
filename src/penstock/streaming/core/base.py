"""What every stream is to the engine: one RDD for each batch, kept for as long as one may need it.

Invariants:

1. Asked twice for one batch, a stream gives the same RDD.
2. A stream's RDD of time t goes only when batches up to ``t + remember_ms`` are committed. Parents
   remember at least as long as what is computed from them, and longer by the width of a window.
3. Only batches that were planned have RDDs: looking back never reads what no batch took.
4. An RDD that is written to the checkpoint location is the stream's own, made for that batch: its
   files go with it, and its lineage is cut, so it must not be one that a program still uses.

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
    from penstock.streaming.context import StreamingContext
    from penstock.streaming.core.rdd_checkpoints import RddCheckpoints
    from penstock.streaming.core.stored_state import StoredStateStream

__all__ = ["BaseDStream"]

_LEAST_CHECKPOINT_MS = 10_000
"""How far apart RDD checkpoints are at least, unless a program says otherwise; as in Spark."""

_computing = threading.RLock()
"""Guards the RDDs of all streams: one program runs in a process, planning and ``slice`` meet."""


class BaseDStream(ABC):
    """A stream as the engine sees it; ``DStream`` adds what users call."""

    must_checkpoint = False
    """Whether each RDD is made of the one before it, so that lineage grows unless it is cut.

    A restart needs the RDD checkpoints of such a stream (``restarts_from``).
    """

    needs_missed_ticks = False
    """Whether a tick that passed without a batch needs one where this stream has records then.

    So it is where an RDD is made of the batches within a time: each record is in all its windows.
    """

    is_written_by_executors = False
    """Whether tasks write for it to the checkpoint location, besides RDDs (``writes_rdds``)."""

    def __init__(self, ssc: StreamingContext) -> None:
        ssc.check_extensible("add a stream")
        self._ssc: StreamingContext | None = ssc
        self._generated: dict[int, RDD[Any]] = {}
        self._persisted: set[int] = set()
        self._zero_ms: int | None = None
        self.storage_level: StorageLevel | None = None
        """At which level this stream's RDDs are persisted, None for not at all."""
        self.checkpoint_ms: int | None = None
        """How far apart the RDDs are that are written to the checkpoint location, None for none."""
        self.checkpoint_data: DStreamCheckpointData | None = None
        """Which RDDs were written to the checkpoint location, None where none are."""
        self.remember_ms = 0
        """How long an RDD is kept after its batch's time."""

    # -- what a kind of stream implements --

    @property
    @abstractmethod
    def parents(self) -> tuple[BaseDStream, ...]:
        """The streams that this one is computed from."""

    @abstractmethod
    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return this stream's RDD for the batch of that time; None when there is none."""

    @property
    def slide_ms(self) -> int:
        """How far apart this stream's RDDs are."""
        return self.parents[0].slide_ms

    @property
    def parent_remember_ms(self) -> int:
        """How long this stream needs its parents to keep their RDDs."""
        return self.remember_ms

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

    @property
    def writes_rdds(self) -> bool:
        """Whether this stream writes RDDs to the checkpoint location."""
        return self.must_checkpoint or self.checkpoint_ms is not None

    @property
    def stored_state(self) -> StoredStateStream | None:
        """This stream, if it keeps state on the checkpoint location; None otherwise."""
        return None

    # -- the context --

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

    # -- how far batches look back --

    def needed_after(self, done_ms: int) -> int:
        """Return the time after which this stream's RDDs may be asked for again.

        That is when batches up to ``done_ms`` are done, and as far as this stream knows.
        """
        return done_ms - self.remember_ms if self.remember_ms > self.slide_ms else done_ms

    def restarts_from(self, after_ms: int, done_ms: int) -> int:
        """Return from which of its times a restart makes this stream again, for those after."""
        return after_ms

    def parents_needed_after(self, after_ms: int, done_ms: int) -> int:
        """Return what ``needed_after`` is for parents, where it is ``after_ms`` for this stream."""
        return self.restarts_from(after_ms, done_ms)

    def times_with_records(self, parents_ms: Sequence[int], until_ms: int) -> Sequence[int]:
        """Return the times, up to ``until_ms``, at which this stream has records; ascending.

        Parents have records at ``parents_ms``; for an input that is when it takes some.
        """
        return parents_ms

    # -- durations --

    def initialize(self, zero_ms: int) -> None:
        """Begin: this stream's RDDs lie at multiples of its slide after ``zero_ms``."""
        self._zero_ms = zero_ms
        if self.must_checkpoint and self.checkpoint_ms is None:
            slides = -(-_LEAST_CHECKPOINT_MS // self.slide_ms)
            self.checkpoint_ms = slides * self.slide_ms
        # Two checkpoints, so that the older one goes when nothing is made of it any more.
        checkpoints_ms = 0 if self.must_checkpoint else 2 * (self.checkpoint_ms or 0)
        self.remember(max(self.slide_ms, checkpoints_ms))

    def remember(self, duration_ms: int) -> None:
        """Keep RDDs for that long, or for longer if that was said before."""
        self.remember_ms = max(self.remember_ms, duration_ms)

    def is_time_valid(self, time_ms: int) -> bool:
        """Whether this stream has an RDD for a batch of that time.

        Raises:
            StreamingError: the context was not started, or no output depends on this stream.
        """
        zero_ms = self._initialized_at()
        # Every batch is one of a stream as fast as the batches, also one that was planned under
        # another batch interval and runs again.
        if self.slide_ms == self.ssc.graph.batch_interval_ms:
            return True
        return (time_ms - zero_ms) % self.slide_ms == 0

    # -- RDDs --

    def get_or_compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the RDD for the batch of that time, the same one each time it is asked for."""
        with _computing:
            if time_ms not in self._generated:
                rdd = self.compute(time_ms) if self.is_time_valid(time_ms) else None
                if rdd is None:
                    return None
                self._keep(time_ms, rdd)
            return self._generated[time_ms]

    def generated(self, time_ms: int) -> RDD[Any] | None:
        """Return the RDD of that time if it was computed already."""
        return self._generated.get(time_ms)

    def times_between(self, after_ms: int, until_ms: int) -> list[int]:
        """Return this stream's times with ``after_ms < time <= until_ms``, ascending."""
        return list(filter(self.is_time_valid, self.ssc.graph.times_between(after_ms, until_ms)))

    def rdds_between(self, after_ms: int, until_ms: int) -> list[RDD[Any]]:
        """Return the RDDs of all batches with ``after_ms < time <= until_ms``, oldest first."""
        found = map(self.get_or_compute, self.times_between(after_ms, until_ms))
        return [rdd for rdd in found if rdd is not None]

    def slice_rdds(self, begin_ms: int, end_ms: int) -> list[RDD[Any]]:
        """Return the RDDs from ``begin_ms``, or the slide before it, to ``end_ms``, both included.

        Raises:
            StreamingError: as ``is_time_valid``.
        """
        aligned_ms = begin_ms - (begin_ms - self._initialized_at()) % self.slide_ms
        return self.rdds_between(aligned_ms - 1, end_ms)

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """Forget what is not to be remembered when no batch up to that time runs in this run.

        RDDs after ``needed_after_ms`` may be asked for again.
        """
        self._forget(ended_ms - self.remember_ms)

    def open_rdd_checkpoints(self, place: RddCheckpoints) -> None:
        """Learn where RDD checkpoints are; called before the stream is asked for anything."""
        if self.checkpoint_data is not None:
            self.checkpoint_data.open(place)

    def restore_checkpoint_data(self, done_ms: int, planned_ms: int) -> None:
        """Take up the RDD checkpoints that a run before left.

        Batches up to ``done_ms`` are committed, and the offset log has those up to ``planned_ms``.
        """
        if self.checkpoint_data is not None:
            self._generated.update(self.checkpoint_data.restore_all())

    def clear_checkpoint_data(self, done_ms: int, needed_after_ms: int) -> None:
        """Delete what no run needs when batches up to ``done_ms`` are done; raises PenstockError.

        RDD checkpoints after ``needed_after_ms`` stay, because something looks back to them.
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
        """Return an RDD of the same records that no one else holds."""
        # A lambda, because executors get it by value: they never import penstock.streaming.
        return rdd.mapPartitions(lambda records: records, preservesPartitioning=True)

    def _release(self, time_ms: int, rdd: RDD[Any]) -> None:
        if time_ms in self._persisted:  # what the program itself cached stays
            self._persisted.remove(time_ms)
            if self.ssc.settings.unpersist:
                rdd.unpersist()

    def _is_checkpoint_due(self, time_ms: int) -> bool:
        if self.checkpoint_data is None or self.checkpoint_ms is None:
            return False
        return self.checkpoint_data.is_due(time_ms, self._initialized_at(), self.checkpoint_ms)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ssc": None, "_generated": {}, "_persisted": set()}
