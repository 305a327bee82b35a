"""Writes the records of a batch, an RDD's or a DataFrame's, to topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, get_args

import pyarrow as pa
from pyspark import RDD, TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.errors import ConfigError
from penstock.kafka.sink import (
    Destination,
    Encoder,
    Outgoing,
    SinkBatches,
    check_sink_settings,
    send_partition,
    sink_conf,
    write_partition,
)
from penstock.model import OutputBatch

__all__ = ["Delivery", "check_delivery", "sink_batches", "write", "write_rdd"]

Delivery = Literal["at_least_once", "exactly_once"]
"""Whether a batch that runs again is written again, or only what is missing of it."""

_HEADERS = "array<struct<key:string,value:binary>>"
_COUNT = "records long"
_ATTEMPT = "spark.penstock.sinkAttempt"
"""A DataFrame's tasks are made before it is known how many partitions it has."""
_sinks: dict[tuple[str, ...], SinkBatches] = {}
"""Of this driver, by what identifies them: fenced when another driver takes over."""


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
        ConfigError: a column is missing or of another type, or a setting is wrong.
        KafkaError: the brokers refuse or do not answer.
        ConcurrentDriverError: another driver has taken over.
    """
    settings = sink_conf(conf).settings()
    check_delivery(delivery)
    rows = _columns(df, topic)
    if delivery == "at_least_once":
        rows.mapInArrow(_SendRows(settings), _COUNT).collect()
        return
    sink = sink_batches(settings, topic, output)
    counts = rows.mapInArrow(_WriteRows(sink.destination(output.batch_id)), _COUNT).rdd
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


def sink_batches(settings: Mapping[str, Any], topic: str, output: OutputBatch) -> SinkBatches:
    """Return this driver's side of an output."""
    key = (repr(sorted(settings.items())), topic, output.location_id, output.output)
    if key not in _sinks:
        check_sink_settings(settings, exactly_once=True)
        _sinks[key] = SinkBatches(settings, topic, output.location_id, output.output)
    return _sinks[key]


def check_delivery(delivery: Any) -> None:
    """Raise ConfigError unless it is one of ``Delivery``."""
    if delivery not in get_args(Delivery):
        raise ConfigError(
            f"delivery={delivery!r} is not possible",
            operation="write to Kafka",
            hint=f"choose among {', '.join(get_args(Delivery))}",
        )


def _write(sink: SinkBatches, output: OutputBatch, counts: RDD[Any]) -> None:
    """Run the tasks of ``counts``: first those that prove what is written, then the others."""
    partitions = counts.getNumPartitions()
    attempt = sink.begin(output.batch_id, partitions, may_be_written=output.may_be_written)
    others = [index for index in range(partitions) if index not in attempt.done]
    sc = counts.context
    before = sc.getLocalProperty(_ATTEMPT)
    sc.setLocalProperty(_ATTEMPT, str(attempt.number))
    try:
        for indexes in (sorted(attempt.done), others):
            if indexes:
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
        number = int(task.getLocalProperty(_ATTEMPT) or 0)
        return write_partition(self._to, number, task.partitionId(), outgoing)


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
    for batch in batches:
        topics, keys, values = (batch[name].to_pylist() for name in ("topic", "key", "value"))
        if "headers" not in batch.schema.names:
            yield from map(Outgoing, topics, keys, values)
            continue
        for topic, key, value, headers in zip(
            topics, keys, values, batch["headers"].to_pylist(), strict=True
        ):
            pairs = None if headers is None else [(h["key"], h["value"]) for h in headers]
            yield Outgoing(topic, key, value, pairs)


def _columns(df: DataFrame, topic: str) -> DataFrame:
    """Return the rows with the columns that tasks take.

    Raises:
        ConfigError: a column is missing or of another type.
    """
    types = dict(df.dtypes)
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


def _wrong(what: str) -> ConfigError:
    return ConfigError(
        what,
        operation="write to Kafka",
        hint="columns: value and key are string or binary, topic is string, headers is "
        f"{_HEADERS}; others do not count",
    )
