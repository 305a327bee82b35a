"""Operations on streams of any records, and outputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import RDD, StorageLevel

from penstock.kafka.client_conf import check_kafka_client
from penstock.streaming.core import records, transforms
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.checkpoint_data import DStreamCheckpointData
from penstock.streaming.operations.outputs import ForEachBatch, ForEachRDD, print_records
from penstock.streaming.operations.text_files import save_as_text_files
from penstock.streaming.operations.window_times import check_duration

if TYPE_CHECKING:
    from penstock.kafka.spark import Delivery
    from penstock.streaming.core.program import Program
    from penstock.streaming.operations.dstream import DStream

_Self = TypeVar("_Self", bound="BasicOperations")


class BasicOperations(BaseDStream):
    """Operations on a stream of any records. Names and meaning: ``pyspark.streaming``."""

    @abstractmethod
    def _derive(
        self, operation: str, function: Callable[..., RDD[Any]], *others: DStream, **bound: Any
    ) -> DStream:
        """Return the stream of ``function(time_ms, rdd, *other_rdds, **bound)``."""

    @abstractmethod
    def _transformed(
        self, operation: str, func: Callable[..., RDD[Any]], *others: DStream
    ) -> DStream:
        """Return the stream of a user's function of this stream's RDD and others'."""

    def _by_record(
        self, operation: str, way: Callable[..., Any], func: Callable[[Any], Any], keeps: bool
    ) -> DStream:
        return self._derive(operation, transforms.by_record, way=way, func=func, keeps=keeps)

    def _by_method(self, method: str, **arguments: Any) -> DStream:
        return self._derive(method, transforms.by_method, method=method, **arguments)

    def context(self) -> Program:
        """Return the StreamingContext of this stream."""
        return self.ssc

    # -- record by record --

    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> DStream:
        """Return a stream with ``f`` applied to each record."""
        return self._by_record("map", records.mapped, f, preservesPartitioning)

    def flatMap(
        self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream:
        """Return a stream with all results of ``f`` for each record."""
        return self._by_record("flatMap", records.flat_mapped, f, preservesPartitioning)

    def filter(self, f: Callable[[Any], bool]) -> DStream:
        """Return a stream of the records for which ``f`` is true."""
        return self._by_record("filter", records.filtered, f, keeps=True)

    def mapPartitions(
        self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream:
        """Return a stream with ``f`` applied to the iterator of each partition of each RDD."""
        return self._by_method("mapPartitions", f=f, preservesPartitioning=preservesPartitioning)

    def mapPartitionsWithIndex(
        self, f: Callable[[int, Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream:
        """Return a stream with ``f(index, iterator)`` applied to each partition of each RDD."""
        return self._by_method(
            "mapPartitionsWithIndex", f=f, preservesPartitioning=preservesPartitioning
        )

    def glom(self) -> DStream:
        """Return a stream with a list of the records of each partition."""
        return self._by_method("glom")

    def repartition(self, numPartitions: int) -> DStream:
        """Return a stream whose RDDs have that many partitions."""
        return self._by_method("repartition", numPartitions=numPartitions)

    # -- whole batches --

    def reduce(self, func: Callable[[Any, Any], Any]) -> DStream:
        """Return a stream with each batch's records merged into one; none for an empty batch."""
        return self._derive("reduce", transforms.reduce_records, func=func)

    def count(self) -> DStream:
        """Return a stream with the number of records of each batch."""
        return self._derive("count", transforms.count)

    def countByValue(self) -> DStream:
        """Return a stream of pairs of each distinct record of a batch and its number in it."""
        return self._derive("countByValue", transforms.count_by_value)

    def transform(self, func: Callable[..., RDD[Any]]) -> DStream:
        """Return a stream of ``func(rdd)``, or ``func(time, rdd)`` if it takes two arguments."""
        return self._transformed("transform", func)

    def transformWith(
        self, func: Callable[..., RDD[Any]], other: DStream, keepSerializer: bool = False
    ) -> DStream:
        """Return a stream of ``func(rdd, other_rdd)``, with the time first when it takes three.

        ``keepSerializer`` exists for compatibility and has no effect: each RDD knows its
        serializer.

        Raises:
            ConfigError: the two have different slide durations or contexts.
        """
        return self._transformed("transformWith", func, other)

    def slice(self, begin: datetime | float, end: datetime | float) -> list[RDD[Any]]:
        """Return the RDDs of the batches from ``begin`` to ``end``, both included.

        Times are local datetimes or seconds since the epoch; a time between two batches means the
        earlier one. Only remembered RDDs are returned: see ``StreamingContext.remember``.

        Raises:
            StreamingError: the context was not started, or no output depends on this stream.
        """
        begin_ms = transforms.to_time_ms(begin)
        aligned_ms = begin_ms - (begin_ms - self._initialized_at()) % self.slide_ms
        return self.rdds_between(aligned_ms - 1, transforms.to_time_ms(end))

    # -- persistence of RDDs --

    def cache(self: _Self) -> _Self:
        """Persist this stream's RDDs in memory for as long as they are remembered."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    def persist(self: _Self, storageLevel: StorageLevel) -> _Self:
        """Persist this stream's RDDs at that level for as long as they are remembered."""
        self.ssc.check_changeable("persist a stream")
        self.storage_level = storageLevel
        return self

    def checkpoint(self: _Self, interval: float) -> _Self:
        """Write an RDD to the checkpoint location every ``interval`` seconds; cuts lineage.

        A restart with a graph checkpoint reads the RDDs that windows or state need, instead of
        computing them again.

        Raises:
            ConfigError: the interval is not a multiple of the slide duration.
        """
        self.ssc.check_changeable("checkpoint a stream")
        self.checkpoint_ms = check_duration(
            "checkpoint interval", interval, self.slide_ms, owner="dstream's"
        )
        if self.checkpoint_data is None:
            self.checkpoint_data = DStreamCheckpointData(
                self.ssc.graph.operators.unnamed("checkpoint"), {}
            )
        return self

    # -- outputs --

    def foreachRDD(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Call ``func(rdd)``, or ``func(time, rdd)`` when it takes two, for each batch.

        When it takes three, the third is the batch's ``OutputBatch``: location id, output name and
        batch id, which are the same whenever the batch runs again.

        Args:
            func: what is called.
            name: the output's name, its own in the program; by default ``foreachRDD-<number>``.

        Raises:
            ConfigError: this is not a function, or the name is not allowed.
            StreamingError: another output has the name.
        """
        self.ssc.graph.add_output(ForEachRDD(self, func, name))

    def foreachBatch(self, func: Callable[..., Any], name: str | None = None) -> None:
        """Call ``func(df, batch_id)`` for each batch, with the records as a DataFrame.

        The records stay in Parquet and in the JVM; nothing passes through Python unless ``func``
        does so. After a failure the same batch runs again with the same id and the same records, so
        a sink that replaces its output of that id has each record exactly once. When ``func`` takes
        three arguments, the third is the batch's ``OutputBatch``: location id, output name and
        batch id. docs/outputs.md says what is guaranteed.

        Args:
            func: the function of a batch.
            name: the output's unique name in the program; by default ``foreachBatch-<number>``.

        Raises:
            ConfigError: this stream has no columns (it holds Python objects), this is not a
                function, or the name is not allowed.
            StreamingError: another output has the name.
        """
        self.ssc.graph.add_output(ForEachBatch(self, func, name))

    def to_kafka(
        self,
        topic: str,
        conf: Mapping[str, Any],
        key: Callable[[Any], Any] | None = None,
        value: Callable[[Any], Any] | None = None,
        headers: Callable[[Any], Iterable[tuple[str, Any]] | None] | None = None,
        delivery: Delivery = "at_least_once",
        name: str | None = None,
    ) -> None:
        """Write each batch's records to a Kafka topic. docs/kafka.md says what is guaranteed.

        Args:
            topic: the topic; it must exist for ``"exactly_once"``.
            conf: librdkafka's settings; ``bootstrap.servers`` is required.
            key: a function of a record, to bytes, str (as UTF-8) or None; without it no record has
                a key.
            value: the same for the value; without it the record is the value.
            headers: a function of a record, to pairs of name and bytes, str or None.
            delivery: ``"exactly_once"`` writes a batch once, however often it runs.
            name: the output's unique name in the program; by default ``to_kafka-<number>``.

        Raises:
            ConfigError: an argument or setting is wrong, or confluent-kafka is not installed.
            StreamingError: another output has the name.
        """
        check_kafka_client("to_kafka")
        from penstock.streaming.operations.kafka_output import KafkaOutput

        self.ssc.graph.add_output(
            KafkaOutput(
                self,
                topic,
                conf,
                key=key,
                value=value,
                headers=headers,
                delivery=delivery,
                name=name,
            )
        )

    def pprint(self, num: int = 10, name: str | None = None) -> None:
        """Print the first ``num`` records of each batch."""
        self.foreachRDD(partial(print_records, num=num), name)

    def saveAsTextFiles(
        self, prefix: str, suffix: str | None = None, name: str | None = None
    ) -> None:
        """Write each batch's records, as text, to the folder ``prefix-TIME_IN_MS[.suffix]``.

        A batch that runs again writes its folder once: a complete folder is kept, and an incomplete
        one is rewritten.
        """
        self.foreachRDD(partial(save_as_text_files, prefix=prefix, suffix=suffix), name)
