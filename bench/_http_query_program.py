"""One end-to-end run of the benchmark of HTTP to a Structured query.

    _http_query_program.py penstock|kafka LINES SECONDS

The last line of output is JSON: lines that were counted for each second, from the first request to
the end of the batch that counted the last one.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness import http_server, spark_context, wrk
from harness.kafka_broker import connector_jars, kafka_broker
from pyspark.sql import DataFrame, SparkSession

from penstock.receivers import HttpReceiver
from penstock.structured import register, scan, start_receivers

_LINE = b"x" * 100
_TOPIC, _PARTITIONS = "lines", 2
_CONNECTIONS = {1: 512, 100: 64}
"""Lines of a request -> connections that send such."""
_PATIENCE_S = 120.0


class _Counts:
    """What a query's batches counted, and when the last of them did."""

    def __init__(self) -> None:
        self.lines = 0
        self.last_s = 0.0

    def add(self, count: int) -> None:
        if count:
            self.lines += count
            self.last_s = time.perf_counter()

    def wait_for(self, lines: int) -> None:
        """Wait until at least so many lines were counted, and then until no more come.

        Raises:
            RuntimeError: they did not come in time.
        """
        deadline_s = time.perf_counter() + _PATIENCE_S
        while self.lines < lines or time.perf_counter() < self.last_s + 3:
            if time.perf_counter() > deadline_s:
                raise RuntimeError(f"{self.lines} of {lines} acked lines were counted")
            time.sleep(0.1)


@contextmanager
def _penstock(counts: _Counts) -> Iterator[int]:
    spark = SparkSession(spark_context("local[3]"))
    register(spark)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        receivers = start_receivers(spark, HttpReceiver(port=0), folder, "lines")
        options = {"journal": folder, "stream": "lines", "consumer": "count", "content": "ranges"}
        source = spark.readStream.format("penstock").options(**options).load()
        with _counted(source, folder, lambda batch: counts.add(scan(batch).count())):
            while (url := receivers.status()[0].listening_at) is None:
                time.sleep(0.05)
            yield int(url.rpartition(":")[2].strip("/"))
        receivers.stop()


@contextmanager
def _kafka(counts: _Counts) -> Iterator[int]:
    with kafka_broker() as broker, tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        if broker is None:
            raise RuntimeError("there are no libraries of a broker (scripts/kafka.sh)")
        broker.create_topic(_TOPIC, partitions=_PARTITIONS)
        jars = {"spark.jars": ",".join(map(str, connector_jars()))}
        spark = SparkSession(spark_context("local[3]", jars))
        source = spark.readStream.format("kafka").option("subscribe", _TOPIC)
        source = source.option("kafka.bootstrap.servers", broker.address)
        source = source.option("startingOffsets", "earliest")
        with (
            _counted(source.load(), folder, lambda batch: counts.add(batch.count())),
            http_server("kafka", broker.address, _TOPIC) as port,
        ):
            yield port


@contextmanager
def _counted(source: DataFrame, folder: str, count: Callable[[DataFrame], None]) -> Iterator[None]:
    query = (
        source.writeStream.foreachBatch(lambda batch, _: count(batch))
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="1 second")
        .start()
    )
    try:
        yield
    finally:
        query.stop()


def main(engine: str, lines: str, seconds: str) -> None:
    """Run one side, and print its figure."""
    number = int(lines)
    body = b"\n".join([_LINE] * number)
    counts = _Counts()
    with {"penstock": _penstock, "kafka": _kafka}[engine](counts) as port:
        press = {"connections": _CONNECTIONS[number], "seconds": float(seconds)}
        acked = wrk(port, body, "text/plain", **press).requests * number  # warms up
        counts.wait_for(acked)
        counts.lines, begun_s = 0, time.perf_counter()
        acked = wrk(port, body, "text/plain", **press).requests * number
        counts.wait_for(acked)
        print(json.dumps({"rate": counts.lines / (counts.last_s - begun_s)}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
