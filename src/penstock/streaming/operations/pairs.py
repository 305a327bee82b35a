"""Operations on streams of (key, value) pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, cast

from pyspark import RDD
from pyspark.core.rdd import portable_hash

from penstock.errors import ConfigError
from penstock.streaming.core import records, transforms
from penstock.streaming.operations.basic import BasicOperations

if TYPE_CHECKING:
    from penstock.streaming.operations.dstream import DStream


class PairOperations(BasicOperations):
    """Operations on a stream of pairs. Names and meaning: ``pyspark.streaming``.

    ``numPartitions`` is the number of partitions of the resulting RDDs; the default is Spark's
    default parallelism.
    """

    def mapValues(self, f: Callable[[Any], Any]) -> DStream:
        """Return a stream of pairs with ``f`` applied to each value."""
        return self._by_record("mapValues", records.mapped_values, f, keeps=True)

    def flatMapValues(self, f: Callable[[Any], Iterable[Any]]) -> DStream:
        """Return a stream with a pair of the key and each result of ``f`` for a value."""
        return self._by_record("flatMapValues", records.flat_mapped_values, f, keeps=True)

    def reduceByKey(
        self, func: Callable[[Any, Any], Any], numPartitions: int | None = None
    ) -> DStream:
        """Return a stream of pairs with each batch's values of a key merged by ``func``."""
        return self._derive(
            "reduceByKey", transforms.reduce_by_key, func=func, partitions=numPartitions
        )

    def combineByKey(
        self,
        createCombiner: Callable[[Any], Any],
        mergeValue: Callable[[Any, Any], Any],
        mergeCombiners: Callable[[Any, Any], Any],
        numPartitions: int | None = None,
    ) -> DStream:
        """Return a stream of pairs with each batch's values of a key combined, as with RDDs."""
        return self._derive(
            "combineByKey",
            transforms.combine_by_key,
            create=createCombiner,
            add_value=mergeValue,
            merge=mergeCombiners,
            partitions=numPartitions,
        )

    def groupByKey(self, numPartitions: int | None = None) -> DStream:
        """Return a stream of pairs of a key and an iterable of its values in the batch."""
        return self._by_key("groupByKey", numPartitions)

    def partitionBy(
        self, numPartitions: int, partitionFunc: Callable[[Any], int] = portable_hash
    ) -> DStream:
        """Return a stream of the same pairs, partitioned by key."""
        return self._by_method(
            "partitionBy", numPartitions=numPartitions, partitionFunc=partitionFunc
        )

    def cogroup(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """Return a stream of ``(key, (values of this, values of other))`` of each batch."""
        return self._by_key("cogroup", numPartitions, other)

    def join(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """Return a stream of ``(key, (value, other value))`` for keys that occur in both."""
        return self._by_key("join", numPartitions, other)

    def leftOuterJoin(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """Return a stream as from ``join``, with None for keys that ``other`` lacks."""
        return self._by_key("leftOuterJoin", numPartitions, other)

    def rightOuterJoin(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """Return a stream as from ``join``, with None for keys that this stream lacks."""
        return self._by_key("rightOuterJoin", numPartitions, other)

    def fullOuterJoin(self, other: DStream, numPartitions: int | None = None) -> DStream:
        """Return a stream as from ``join``, with None for keys that either stream lacks."""
        return self._by_key("fullOuterJoin", numPartitions, other)

    def updateStateByKey(
        self,
        updateFunc: Callable[[list[Any], Any], Any],
        numPartitions: int | None = None,
        initialRDD: RDD[tuple[Any, Any]] | Iterable[tuple[Any, Any]] | None = None,
        name: str | None = None,
    ) -> DStream:
        """Return a stream of pairs of each key and its state; every batch updates the state.

        State continues after a restart, and after a change of the code.

        Args:
            updateFunc: called in each batch with ``(new values, state)`` for every key that has
                values or a state; the state is None at first. Returns the new state; None removes
                the key. It may modify the given state.
            numPartitions: partitions of each RDD; Spark's default parallelism by default.
            initialRDD: initial pairs of keys and states, an RDD or a list. It is written to the
                checkpoint location before the first batch; after a restart it is ignored.
            name: identifies the state after a restart; set it to keep the state when the program's
                operators change order.

        Raises:
            ConfigError: ``updateFunc`` is not a function, or the name is not a valid file name.
            StreamingError: another operator has the name.
        """
        if not callable(updateFunc):
            raise ConfigError(
                f"{updateFunc!r} is not a function",
                operation="updateStateByKey",
                hint="give a function of the list of new values and the state",
            )
        from penstock.streaming.state.state_dstream import StateDStream  # a DStream itself

        given = initialRDD if isinstance(initialRDD, RDD) else list(initialRDD or ())
        return StateDStream(
            cast("DStream", self),
            self.ssc.graph.operators.add("updateStateByKey", name),
            update=updateFunc,
            partitions=numPartitions or self.ssc.sparkContext.defaultParallelism,
            initial=given if isinstance(given, RDD) or given else None,
        )

    def _by_key(self, method: str, partitions: int | None, *others: DStream) -> DStream:
        return self._derive(
            method, transforms.by_key, *others, method=method, partitions=partitions
        )
