"""updateStateByKey: a value for each key, updated by each batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from pyspark import RDD

from penstock.errors import RecoveryMismatchError
from penstock.streaming.core.operators import Operator
from penstock.streaming.operations.dstream import DStream
from penstock.streaming.state.state_in_rdds import RddStateDStream

_Update = Callable[[list[Any], Any], Any]


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
