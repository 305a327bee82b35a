"""What the programs share that tests run as processes of their own (``tests.faults.driver``)."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext, StreamingListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.core.events import StreamingListenerBatchCompleted

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.penstock.journal.compression": "lz4",
    "spark.streaming.gracefulStopTimeout": "2min",  # its 10 batches may be short
    "spark.streaming.receiverRestartDelay": "100ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def say(*words: object) -> None:
    """Report a line to the test."""
    print(*words, flush=True)


class Report(StreamingListener):
    """Says what was committed: ``committed ID RECORDS TIME_MS``."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Say one line a batch."""
        batch = batchCompleted.batch_info
        if not batch.failed:
            say("committed", batch.batch_id, batch.num_records, batch.batch_time_ms)


def new_spark(
    master: str = "local[2]", settings: Mapping[str, str] = NO_SETTINGS, log_level: str = "OFF"
) -> SparkContext:
    """Return a quiet Spark that binds to loopback only."""
    conf = SparkConf().setMaster(master).setAppName("test program")
    sc = SparkContext(conf=conf.setAll([*SETTINGS.items(), *settings.items()]))
    sc.setLogLevel(log_level)
    return sc


def new_context(
    master: str = "local[2]",
    batch_s: float = 0.3,
    retain: int = 100,
    settings: Mapping[str, str] = NO_SETTINGS,
) -> StreamingContext:
    """Return the context of a program that is killed, with short intervals."""
    retained = {"spark.sql.streaming.minBatchesToRetain": str(retain)}
    return StreamingContext(new_spark(master, {**retained, **settings}), batch_s)


def run(ssc: StreamingContext) -> None:
    """Run a program, reporting its batches, until it is killed."""
    _start(ssc)
    ssc.awaitTermination()


def run_until_told(ssc: StreamingContext) -> None:
    """Run a program, reporting its batches, until standard input ends; then stop gracefully."""
    _start(ssc)
    sys.stdin.readline()
    ssc.stop(stopGraceFully=True)


def _start(ssc: StreamingContext) -> None:
    ssc.sparkContext.setLogLevel("OFF")  # of one that was read from a graph checkpoint, too
    ssc.addStreamingListener(Report())
    ssc.start()


def replace_batch(df: DataFrame, batch_id: int, sink: str) -> None:
    """Write a batch to SINK/batch=<id>.parquet, in place of what an earlier try left there.

    On the driver: a job that writes so few records costs several times what the batch itself does.
    """
    os.makedirs(sink, exist_ok=True)
    unfinished = f"{sink}/{batch_id}-{os.getpid()}.unfinished"
    pq.write_table(df.toArrow(), unfinished)
    os.replace(unfinished, f"{sink}/batch={batch_id:08d}.parquet")
