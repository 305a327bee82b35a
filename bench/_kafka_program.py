"""One program of the Kafka benchmark; the last line of its output is JSON.

    _kafka_program.py read penstock|connector PART ADDRESS TOPIC RECORDS BATCHES
    _kafka_program.py idle kafka|empty ADDRESS TOPIC BATCHES
    _kafka_program.py sink bare|at_least_once|exactly_once ADDRESS TOPIC RECORDS BATCHES

Each batch takes RECORDS from each of the topic's partitions, or writes so many in each of two
tasks. Figures are medians, of batches after the first ones.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from harness import spark_context
from harness.kafka_broker import VALUE_BYTES, connector_jars
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

_PARTITIONS = 4
_WARM_IDLE = 20
_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
_PARTS: dict[str, tuple[str, ...]] = {
    "rdd": ("value",),
    "count": ("offset",),
    "key and value": ("key", "value"),
    "all columns": _COLUMNS,
}
"""What is read -> the columns that it needs."""


def main() -> None:
    """Run one program and print what it took."""
    what, *arguments = sys.argv[1:]
    found = {"read": _read, "idle": _idle, "sink": _sink}[what](*arguments)
    print(json.dumps(found), flush=True)
    os._exit(0)


# -- reading --


def _read(engine: str, part: str, address: str, topic: str, records: str, batches: str) -> Any:
    run = {"penstock": _read_penstock, "connector": _read_connector}[engine]
    seconds = run(part, address, topic, int(records), int(batches))
    return {"seconds": statistics.median(seconds[1:])}


def _read_penstock(part: str, address: str, topic: str, records: int, batches: int) -> list[float]:
    ssc, stepper = _program({"spark.streaming.kafka.maxRatePerPartition": str(records)})
    stream = ssc.kafkaStream(
        [topic], {"bootstrap.servers": address}, "earliest", columns=_PARTS[part], name="in"
    )
    counts: list[int] = []
    if part == "rdd":
        values = stream.map(lambda record: record.value)
        values.foreachRDD(lambda rdd: counts.append(_count_bytes(rdd)))
    else:
        stream.foreachBatch(lambda df, batch_id: _take_frame(part, df, counts))
    ssc.start()
    seconds = [_timed_s(stepper.step) for _ in range(batches)]
    _check_counts(counts, records)
    return seconds


def _read_connector(part: str, address: str, topic: str, records: int, batches: int) -> list[float]:
    jars = ",".join(map(str, connector_jars()))
    spark = SparkSession(spark_context("local[2]", {"spark.jars": jars}))
    counts: list[int] = []

    def take(batch: int) -> None:
        source = spark.read.format("kafka").option("kafka.bootstrap.servers", address)
        for name, at in (("startingOffsets", batch), ("endingOffsets", batch + 1)):
            ends = {str(partition): at * records for partition in range(_PARTITIONS)}
            source = source.option(name, json.dumps({topic: ends}))
        df = source.option("subscribe", topic).option("includeHeaders", "true").load()
        df = df.select(*_PARTS[part])
        if part == "rdd":
            counts.append(_count_bytes(df.rdd.map(lambda row: row.value)))
        else:
            _take_frame(part, df, counts)

    seconds = [_timed_s(lambda batch=batch: take(batch)) for batch in range(batches)]
    _check_counts(counts, records)
    return seconds


def _count_bytes(values: Any) -> int:
    return int(values.map(len).sum()) // VALUE_BYTES


def _take_frame(part: str, df: DataFrame, counts: list[int]) -> None:
    if part == "count":
        counts.append(df.count())
    else:
        df.write.format("noop").mode("overwrite").save()


def _check_counts(counts: list[int], records: int) -> None:
    if any(count != _PARTITIONS * records for count in counts):
        raise RuntimeError(f"batches of {counts} records, not of {_PARTITIONS * records}")


# -- an idle batch --


def _idle(kind: str, address: str, topic: str, batches: str) -> Any:
    ssc, stepper = _program()
    if kind == "kafka":
        stream = ssc.kafkaStream([topic], {"bootstrap.servers": address}, name="in")
    else:
        stream = ssc.queueStream([])
    stream.foreachRDD(lambda rdd: None)
    ssc.start()
    seconds = [_timed_s(stepper.step) for _ in range(_WARM_IDLE + int(batches))]
    return {"ms": 1000 * statistics.median(seconds[_WARM_IDLE:])}


# -- the sink --


def _sink(kind: str, address: str, topic: str, records: str, batches: str) -> Any:
    ssc, stepper = _program()
    values = _values(ssc.sparkContext, int(records))
    stream = ssc.queueStream([values] * int(batches))
    if kind == "bare":
        stream.foreachRDD(lambda rdd: rdd.foreachPartition(_Produce(address, topic)))
    else:
        stream.to_kafka(topic, {"bootstrap.servers": address}, delivery=kind, name="out")
    ssc.start()
    seconds = [_timed_s(stepper.step) for _ in range(int(batches))]
    return {"seconds": statistics.median(seconds[1:])}


def _values(sc: SparkContext, records: int) -> Any:
    """Return an RDD of two partitions of so many values."""
    return sc.range(2, numSlices=2).flatMap(
        lambda _: (b"%0*d" % (VALUE_BYTES, number) for number in range(records))
    )


class _Produce:
    """Task: values to a topic, with confluent-kafka alone."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic

    def __call__(self, values: Iterable[bytes]) -> None:
        from confluent_kafka import Producer  # pickled with this class, it could not be found

        failed: list[Any] = []

        def note(error: Any, message: Any) -> None:
            if error is not None:
                failed.append(error)

        same = {"enable.idempotence": True, "linger.ms": 5}  # as the sink's
        producer = Producer({"bootstrap.servers": self._address, "on_delivery": note, **same})
        for value in values:
            while True:
                try:
                    producer.produce(self._topic, value)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        if producer.flush() or failed:
            raise RuntimeError(f"not delivered: {failed[:1]}")


# -- shared --


def _program(settings: Mapping[str, str] | None = None) -> tuple[StreamingContext, Stepper]:
    clock = ManualClock(1_000_000)
    ssc = StreamingContext(spark_context("local[2]", settings), 1, clock=clock)
    ssc.checkpoint(tempfile.mkdtemp(prefix="checkpoint-"))
    return ssc, Stepper(ssc, clock)


def _timed_s(act: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    act()
    return time.perf_counter() - start_s


if __name__ == "__main__":
    main()
