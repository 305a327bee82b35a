"""Writes the records of a batch, an RDD's or a DataFrame's, to topics."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.errors import ConcurrentDriverError, ConfigError, SinkError
from penstock.exactly_once import begin_write, check_output
from penstock.kafka.sink import (
    Destination,
    Encoder,
    Headers,
    Outgoing,
    SinkBatches,
    check_sink_settings,
    send_partition,
    sink_conf,
    to_headers,
    write_partition,
)
from penstock.model import OutputBatch, shown
from penstock.workers import whole_input

__all__ = ["Delivery", "check_delivery", "write", "write_rdd"]

Delivery = Literal["at_least_once", "exactly_once"]
"""Whether a batch that runs again is written again, or only what is missing of it."""

_HEADERS = "array<struct<key:string,value:binary>>"
_COUNT = "records long"
_ATTEMPT = "spark.penstock.sinkAttempt"
"""A DataFrame's tasks are made before it is known how many partitions it has."""
_DONE = " done"
"""Follows the attempt's number in tasks that prove what is written."""


def write(
    df: DataFrame,
    output: OutputBatch,
    topic: str,
    conf: Mapping[str, Any],
    *,
    delivery: Delivery = "at_least_once",
) -> None:
    """Write a batch's DataFrame to a topic, in a function of ``foreachBatch``.

    Its columns are those of Spark's Kafka sink: ``value``, and if it has them ``key``, ``topic``
    and ``headers``. A row with a topic goes there, others to ``topic``. Returns when all is
    written.

    Args:
        df: the records.
        output: the batch, as ``foreachBatch`` gives it: the third argument of the function.
        topic: where records go; it must exist, and has the sink's tokens.
        conf: librdkafka's settings.
        delivery: ``"exactly_once"`` writes a batch that runs again once (docs/kafka.md).

    Raises:
        ConfigError: a column is missing or of another type, a setting is wrong, ``output`` is none,
            or exactly once it has no plan, or the program could pass a batch over.
        SinkError: exactly once, the run has written this batch, or another one of its id is
            written; or the location was restored from an older copy.
        KafkaError: the brokers refuse or do not answer.
        ConcurrentDriverError: another driver has taken over.
    """
    settings = sink_conf(conf).settings()
    check_delivery(delivery)
    check_output(output)
    rows = _columns(df, topic)
    if delivery == "at_least_once":
        rows.mapInArrow(_SendRows(settings), _COUNT).collect()
        return
    begin_write(output, f"topic {topic}")
    sink = _sinks.get(settings, topic, output)
    counts = rows.mapInArrow(_WriteRows(sink.destination(output.batch_id)), _COUNT).rdd
    with _sinks.writing(output):
        _write(sink, output, counts)


def write_rdd(
    rdd: RDD[Any],
    output: OutputBatch,
    encoder: Encoder,
    settings: Mapping[str, Any],
    sink: SinkBatches | None,
) -> None:
    """Write a batch's RDD; exactly once with a sink.

    Raises: as ``write``.
    """
    if sink is None:
        rdd.mapPartitions(_SendRecords(settings, encoder)).collect()
    else:
        task = _WriteRecords(sink.destination(output.batch_id), encoder)
        _write(sink, output, rdd.mapPartitions(task))


class _Sinks:
    """This driver's sides of the outputs that DataFrames are written to. Thread-safe.

    Of an output the newest is kept: one with other settings takes it over.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[tuple[str, str], tuple[Mapping[str, Any], str, SinkBatches]] = {}
        self._written: dict[tuple[str, str], tuple[str, int]] = {}

    def get(self, settings: Mapping[str, Any], topic: str, output: OutputBatch) -> SinkBatches:
        """Return the driver's side of an output.

        Raises:
            ConfigError: a setting is wrong.
            SinkError: the run has written the batch already.
        """
        name = output.location_id, output.output
        with self._lock:
            if output.run and self._written.get(name) == (output.run, output.batch_id):
                raise _written_twice(output)
            if name in self._held and self._held[name][:2] != (settings, topic):
                self._drop(name)
            if name not in self._held:
                check_sink_settings(settings, exactly_once=True)
                self._held[name] = settings, topic, SinkBatches(settings, topic, *name)
            return self._held[name][2]

    @contextmanager
    def writing(self, output: OutputBatch) -> Iterator[None]:
        """Remember that a batch was written, or forget the driver's side that was fenced."""
        name = output.location_id, output.output
        try:
            yield
        except ConcurrentDriverError:  # if this driver is started again, it takes over in turn
            with self._lock:
                self._drop(name)
            raise
        self._written[name] = output.run, output.batch_id

    def _drop(self, name: tuple[str, str]) -> None:
        if name in self._held:
            self._held.pop(name)[2].close()


_sinks = _Sinks()


def check_delivery(delivery: Any) -> None:
    """Raise ConfigError unless it is one of ``Delivery``."""
    if delivery not in get_args(Delivery):
        raise ConfigError(
            f"delivery={shown(delivery)} is not possible",
            operation="write to Kafka",
            hint=f"choose among {', '.join(get_args(Delivery))}",
        )


def _write(sink: SinkBatches, output: OutputBatch, counts: RDD[Any]) -> None:
    """Run the tasks of ``counts``: first those that prove what is written, then the others."""
    partitions = counts.getNumPartitions()
    attempt = sink.begin(
        output.batch_id, partitions, may_be_written=output.may_be_written, output=output
    )
    others = [index for index in range(partitions) if index not in attempt.done]
    sc = counts.context
    before = sc.getLocalProperty(_ATTEMPT)
    try:
        for mark, indexes in ((_DONE, sorted(attempt.done)), ("", others)):
            if indexes:
                sc.setLocalProperty(_ATTEMPT, f"{attempt.number}{mark}")
                sc.runJob(counts, list, indexes)
    finally:
        sc.setLocalProperty(_ATTEMPT, before)  # type: ignore[arg-type]


class _Write:
    """Task: writes the partition that it runs for; a class, so that it pickles by name."""

    def __init__(self, to: Destination) -> None:
        self._to = to

    def _write(self, outgoing: Iterator[Outgoing]) -> int:
        task = TaskContext.get()
        assert task is not None
        attempt = task.getLocalProperty(_ATTEMPT) or "0"
        number, is_done = int(attempt.removesuffix(_DONE)), attempt.endswith(_DONE)
        records = whole_input(outgoing)
        return write_partition(self._to, number, task.partitionId(), records, is_done=is_done)


class _WriteRecords(_Write):
    def __init__(self, to: Destination, encoder: Encoder) -> None:
        super().__init__(to)
        self._encoder = encoder

    def __call__(self, records: Iterable[Any]) -> Iterator[int]:
        yield self._write(self._encoder(records))


class _WriteRows(_Write):
    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _count(self._write(_outgoing(batches)))


class _SendRecords:
    def __init__(self, settings: Mapping[str, Any], encoder: Encoder) -> None:
        self._settings = settings
        self._encoder = encoder

    def __call__(self, records: Iterable[Any]) -> Iterator[int]:
        yield send_partition(self._settings, self._encoder(records))


class _SendRows:
    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield _count(send_partition(self._settings, _outgoing(batches)))


def _count(records: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([records], pa.int64())], names=["records"])


def _outgoing(batches: Iterable[pa.RecordBatch]) -> Iterator[Outgoing]:
    """Yield the rows, of each batch those of a topic at once."""
    for batch in batches:
        topics = pc.unique(batch["topic"])
        for topic in topics:
            rows = batch if len(topics) == 1 else batch.filter(pc.equal(batch["topic"], topic))
            if rows.num_rows:
                yield Outgoing(topic.as_py(), rows["key"], rows["value"], _headers(rows))


def _headers(rows: pa.RecordBatch) -> list[Headers | None] | None:
    if "headers" not in rows.schema.names:
        return None
    return [
        None if headers is None else to_headers([(h["key"], h["value"]) for h in headers], headers)
        for headers in rows["headers"].to_pylist()
    ]


def _columns(df: DataFrame, topic: str) -> DataFrame:
    """Return the rows with the columns that tasks take.

    Raises:
        ConfigError: a column is missing or of another type.
    """
    types, lower = dict(df.dtypes), [name.lower() for name in df.columns]
    for name in ("value", "key", "topic", "headers"):
        if lower.count(name) > 1:
            raise _wrong(f"the DataFrame has two columns {name}")
    if "value" not in types:
        raise _wrong(f"the DataFrame has no column value: {', '.join(types)}")
    for name in ("key", "value", "topic"):
        allowed = ("string",) if name == "topic" else ("string", "binary")
        if types.get(name, "string") not in allowed:
            raise _wrong(f"column {name} is {types[name]}")
    columns = [F.col("value").cast("binary").alias("value")]
    key = F.col("key") if "key" in types else F.lit(None)
    columns.append(key.cast("binary").alias("key"))
    to = F.coalesce(F.col("topic"), F.lit(topic)) if "topic" in types else F.lit(topic)
    columns.append(to.alias("topic"))
    if "headers" in types:
        if types["headers"] != _HEADERS:
            raise _wrong(f"column headers is {types['headers']}")
        columns.append(F.col("headers"))
    return df.select(columns)


def _written_twice(output: OutputBatch) -> SinkError:
    return SinkError(
        f"output {output.output!r} has written batch {output.batch_id} already in this run: each "
        "output has one write per batch",
        operation="write to Kafka",
        hint="write one DataFrame for each output (df.union(...); rows may have a column topic), "
        "or add a foreachBatch with a name of its own",
    )


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        what,
        operation="write to Kafka",
        hint="columns: value and key are string or binary, topic is string, headers is "
        f"{_HEADERS}; others do not count",
    )
