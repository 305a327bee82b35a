"""Streams in which each batch's RDD is derived from the previous one: states by key, and windows.

Invariants:

1. RDDs are computed in the order of their times, without gaps, also if only later ones are
   requested.
2. The newest RDD that committed batches have reached is kept, because the next one is derived from
   it. Older ones are dropped as soon as nothing needs them; executors keep no copies of them.
3. Each RDD is persisted, and one in each checkpoint interval is written to the checkpoint location,
   so lineage is bounded, and so is what a restart computes again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from pyspark import RDD, StorageLevel

from penstock.errors import RecoveryMismatchError
from penstock.streaming.core import transforms
from penstock.streaming.core.operators import Operator
from penstock.streaming.operations.dstream import DStream, SlidingWindows
from penstock.streaming.operations.window_times import step_window
from penstock.streaming.state.state_checkpoint_data import StateCheckpointData

_Update = Callable[[list[Any], Any], Any]


class RddStateDStream(DStream):
    """A stream with state; ``operator`` names it, ``shape`` has the parameters of its state."""

    must_checkpoint = True

    def __init__(self, parent: DStream, operator: Operator, shape: Mapping[str, int]) -> None:
        super().__init__(parent.ssc)
        self.operator = operator
        self.checkpoint_data: StateCheckpointData = StateCheckpointData(operator, shape)
        self._parent = parent
        self._origin_ms = 0  # no RDD is computed for times up to this one; existing ones stay
        self.persist(StorageLevel.MEMORY_ONLY)

    @abstractmethod
    def advance(self, time_ms: int, previous: RDD[Any] | None, previous_ms: int) -> RDD[Any] | None:
        """Return a batch's RDD, derived from the one of ``previous_ms``; None for no RDD."""

    def initial_rdd(self) -> RDD[Any] | None:
        """Return the initial state; called once in the life of the state."""
        return None

    def is_aligned(self, time_ms: int) -> bool:
        """Whether the stream can continue from its RDD of that time, of an earlier run."""
        return True

    @property
    def operation(self) -> str:
        """The name of the method that created this stream."""
        return self.operator.kind

    @property
    def parents(self) -> tuple[DStream, ...]:
        """The stream of new values."""
        return (self._parent,)

    def compute(self, time_ms: int) -> RDD[Any] | None:
        """Return the RDD of that time, after all earlier ones; None for times no longer kept."""
        if time_ms <= self._origin_ms:
            return None
        for between_ms in self.times_between(self._newest_before(time_ms), time_ms - 1):
            self.get_or_compute(between_ms)
        previous_ms = self._newest_before(time_ms)
        return self.advance(time_ms, self._generated.get(previous_ms), previous_ms)

    def restore_checkpoint_data(self, done_ms: int, planned_ms: int) -> None:
        """Load the state of an earlier run, or start without state."""
        self._origin_ms, self._generated = self.checkpoint_data.restore(
            done_ms, planned_ms, is_aligned=self.is_aligned, initial=self.initial_rdd
        )

    def clear_metadata(self, ended_ms: int, needed_after_ms: int) -> None:
        """Drop all RDDs before the newest one up to ``needed_after_ms``."""
        self._origin_ms = self._newest_before(needed_after_ms + 1)
        self._forget(self._origin_ms - 1)

    def clear_checkpoint_data(self, done_ms: int, needed_after_ms: int) -> None:
        """Delete the RDD checkpoints that no restart needs."""
        self.checkpoint_data.cleanup(done_ms, needed_after_ms)

    def restarts_from(self, after_ms: int, done_ms: int) -> int:
        """Return the time of the RDD checkpoint from which a restart continues."""
        return self.checkpoint_data.restart_ms(after_ms, done_ms)

    def _newest_before(self, time_ms: int) -> int:
        return max((t for t in list(self._generated) if t < time_ms), default=self._origin_ms)

    def _own(self, rdd: RDD[Any]) -> RDD[Any]:
        return rdd  # created by this stream; a batch without records shares its RDD's files

    def _release(self, time_ms: int, rdd: RDD[Any]) -> None:
        # A batch without records has the RDD of the previous one.
        heirs = [t for t, kept in self._generated.items() if kept is rdd]
        if time_ms in self._persisted:
            self._persisted.remove(time_ms)
            self._persisted.update(heirs[:1])
            if not heirs:
                rdd.unpersist()


class StateDStream(RddStateDStream):
    """Each batch's pairs of keys and states.

    Every batch has its own pickled copy, so if an update function modifies the given state, no
    other batch changes.

    Source: ``pyspark.streaming.DStream.updateStateByKey``,
    ``org.apache.spark.streaming.api.python.PythonStateDStream``.
    """

    def __init__(
        self,
        parent: DStream,
        operator: Operator,
        *,
        update: _Update,
        partitions: int,
        initial: RDD[tuple[Any, Any]] | list[tuple[Any, Any]] | None,
    ) -> None:
        super().__init__(parent, operator, shape={})
        self._update = update
        self._partitions = partitions
        self._initial = initial
        self._begins_empty = initial is None

    def advance(self, time_ms: int, previous: RDD[Any] | None, previous_ms: int) -> RDD[Any] | None:
        """Return the states after the batch's values; without a batch, the previous states."""
        new = self._parent.get_or_compute(time_ms)
        if new is None:
            return previous
        return _update_states(previous, new, self._update, self._partitions)

    def initial_rdd(self) -> RDD[Any] | None:
        """Return the program's initial states, one for each key."""
        if self._initial is None:
            if self._begins_empty:
                return None
            raise RecoveryMismatchError(
                "the program was killed before its initialRDD was durable, and the graph checkpoint"
                " cannot hold an RDD",
                operation="updateStateByKey",
                ids={"operator": self.operator.name},
                hint="recover from the program, start with a new checkpoint location, or give "
                "initialRDD as a list",
            )
        sc = self.ssc.sparkContext
        given = sc.parallelize(self._initial) if isinstance(self._initial, list) else self._initial
        return given.reduceByKey(lambda first, _: first, self._partitions)

    def __getstate__(self) -> dict[str, Any]:
        # RDDs belong to one SparkContext.
        kept = self._initial if isinstance(self._initial, list) else None
        return {**super().__getstate__(), "_initial": kept}


def _update_states(
    states: RDD[Any] | None, new: RDD[Any], update: _Update, partitions: int
) -> RDD[Any]:
    """Return the states by key after new values.

    A partition has the grouped new values before the states, so that one pass over the states
    suffices and only the new values are held in memory. (A cogroup, as in PySpark, passes over the
    states twice and holds both.)
    """
    # Nested functions, because they are sent to executors by value: these never import
    # penstock.streaming.

    def group(pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
        grouped: dict[Any, list[Any]] = {}
        for key, value in pairs:
            grouped.setdefault(key, []).append(value)
        yield len(grouped)
        yield from grouped.items()

    def apply(records: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        rest = iter(records)
        grouped = dict(islice(rest, next(rest)))
        for key, state in rest:
            if (updated := update(grouped.pop(key, []), state)) is not None:
                yield key, updated
        for key, values in grouped.items():
            if (updated := update(values, None)) is not None:
                yield key, updated

    merged = new.partitionBy(partitions).mapPartitions(group, preservesPartitioning=True)
    if states is not None:
        # Both sides have the same partitioner, so Spark unites their partitions one by one, in
        # order.
        merged = merged.union(states.partitionBy(partitions))
    return merged.mapPartitions(apply, preservesPartitioning=True)


class ReducedWindowDStream(SlidingWindows, RddStateDStream):
    """Each window's values by key, derived from the previous window.

    The parent holds each batch's values, merged by key. The first window is computed from all its
    batches. Keys stay after their values left, so a window cannot be recomputed from its batches
    alone.

    Source: ``org.apache.spark.streaming.api.python.PythonReducedWindowedDStream``.
    """

    def __init__(
        self,
        parent: DStream,
        operator: Operator,
        window_ms: int,
        slide_ms: int,
        *,
        func: Callable[[Any, Any], Any],
        inverse: Callable[[Any, Any], Any],
        keep: Callable[[Any], bool] | None,
        partitions: int | None,
    ) -> None:
        super().__init__(parent, operator, {"windowMs": window_ms, "slideMs": slide_ms})
        self._window_ms = window_ms
        self._slide_ms = slide_ms
        self._func = func
        self._inverse = inverse
        self._filter = keep
        self._partitions = partitions

    def parents_needed_after(self, after_ms: int, done_ms: int) -> int:
        """Return the beginning of the window from which a restart continues."""
        return super().parents_needed_after(after_ms, done_ms) - self._window_ms

    @property
    def records_last_ms(self) -> int:
        """A slide longer than the window: a key changes in the first window without its records."""
        return self._window_ms + self._slide_ms

    def is_aligned(self, time_ms: int) -> bool:
        """Whether windows still end at that time; a new batch interval may have moved them."""
        return (time_ms - self._initialized_at()) % self._slide_ms == 0

    def advance(self, time_ms: int, previous: RDD[Any] | None, previous_ms: int) -> RDD[Any] | None:
        """Return the reduced values of the window."""
        if previous is None:
            rdds = self._parent.rdds_between(time_ms - self._window_ms, time_ms)
            return self._reduce(rdds) if rdds else None
        step = step_window(previous_ms, time_ms, self._window_ms)
        if left := self._parent.rdds_between(*step.left):
            previous = self._subtract(previous, left)
        entered = self._parent.rdds_between(*step.entered)
        return self._reduce([previous, *entered]) if entered else previous

    def _reduce(self, rdds: list[RDD[Any]]) -> RDD[Any]:
        reduced = transforms.reduce_rdds(rdds, func=self._func, partitions=self._partitions)
        return reduced if self._filter is None else reduced.filter(self._filter)

    def _subtract(self, previous: RDD[Any], left: list[RDD[Any]]) -> RDD[Any]:
        gone = transforms.reduce_rdds(left, func=self._func, partitions=self._partitions)
        return transforms.subtract_by_key(
            previous, gone, inverse=self._inverse, partitions=self._partitions
        )
