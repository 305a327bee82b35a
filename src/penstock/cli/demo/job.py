"""The demo's streaming program: counts the words of growing log files.

It is an ordinary penstock program, and keeps nothing of its own for the case that it is killed. Run
again with the same checkpoint location, it is recreated from there and goes on where it was cut
off. Its sink takes each batch under the batch's id and replaces what was there, so a batch that
runs twice counts once.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.cli.demo.messages import say
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.core.events import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
)

__all__ = ["main"]


def write_word_counts(lines: DataFrame, batch_id: int, out: str) -> None:
    """Write how often each word occurs in a batch, in place of what an earlier attempt wrote."""
    words = lines.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word <> ''")
    words.groupBy("word").count().write.mode("overwrite").parquet(f"{out}/batch={batch_id}")


class Reporter(StreamingListener):
    """Says on standard output how far the program is."""

    def onBatchSubmitted(self, batchSubmitted: StreamingListenerBatchSubmitted) -> None:
        """Said before the batch starts, so no batch can be done that was not heard of."""
        batch = batchSubmitted.batch_info
        say("planned", batch=batch.batch_id, lines=batch.num_records)

    def onBatchStarted(self, batchStarted: StreamingListenerBatchStarted) -> None:
        """Say that Spark works on it."""
        batch = batchStarted.batch_info
        say("started", batch=batch.batch_id, lines=batch.num_records)

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Say that it is committed; a failed one is told by ``awaitTermination``."""
        batch = batchCompleted.batch_info
        if not batch.failed:
            say("committed", batch=batch.batch_id, delay_ms=batch.total_delay_ms)


def create_context(logs: str, out: str) -> StreamingContext:
    """Make the program, the first time."""
    spark = SparkSession.builder.appName("penstock demo").getOrCreate()
    ssc = StreamingContext(spark.sparkContext, batchDuration=1)
    ssc.tailStream(logs, name="logs").foreachBatch(partial(write_word_counts, out=out))
    return ssc


def main() -> None:
    """Count until standard input ends, then finish what was received."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--logs", required=True, help="glob of the log files")
    parser.add_argument("--checkpoint", required=True, help="checkpoint location")
    parser.add_argument("--out", required=True, help="folder of the word counts")
    options = parser.parse_args()

    create = partial(create_context, options.logs, options.out)
    ssc = StreamingContext.getOrCreate(options.checkpoint, create)
    ssc.addStreamingListener(Reporter())
    ssc.start()
    stop = end_of_input()
    while not stop.wait(0.1):
        ssc.awaitTerminationOrTimeout(0)  # raises what a batch or the engine failed with
    ssc.stop(stopSparkContext=True, stopGraceFully=True)


def end_of_input() -> threading.Event:
    """Return an event that is set when standard input ends, also because its other side died."""
    ended = threading.Event()

    def read() -> None:
        # Not sys.stdin.read(): an interpreter that ends by an error would wait for its lock.
        while os.read(sys.stdin.fileno(), 1024):
            pass
        ended.set()

    threading.Thread(target=read, daemon=True).start()
    return ended


if __name__ == "__main__":
    main()
