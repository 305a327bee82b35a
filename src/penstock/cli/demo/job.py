"""The demo's streaming program: counts the words of growing log files.

It is an ordinary penstock program, and keeps nothing of its own for the case that it is killed. Run
again with the same checkpoint location, it is recreated from there and goes on where it was cut
off. Its sink takes each batch under the batch's id and replaces what was there, so a batch that
runs twice counts once.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.streaming import StreamingContext, StreamingListener


def write_word_counts(lines: DataFrame, batch_id: int, out: str) -> None:
    """Write how often each word occurs in a batch, in place of what an earlier attempt wrote."""
    words = lines.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word <> ''")
    words.groupBy("word").count().write.mode("overwrite").parquet(f"{out}/batch={batch_id}")


class Reporter(StreamingListener):
    """Says on standard output how far the program is, as one JSON object a line."""

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:
        """Said before the batch starts, so no batch can be done that was not heard of."""
        self._say("planned", batchSubmitted)

    def onBatchStarted(self, batchStarted: Any) -> None:
        """Say that Spark works on it."""
        self._say("started", batchStarted)

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        """Say that it is committed; a failed one is told by ``awaitTermination``."""
        if not batchCompleted.batch_info.failed:
            self._say("committed", batchCompleted)

    def _say(self, event: str, of: Any) -> None:
        batch = of.batch_info
        said = {"event": event, "batch": batch.batch_id, "lines": batch.num_records}
        print(json.dumps(said), flush=True)


def create_context(root: str) -> StreamingContext:
    """Make the program, the first time."""
    spark = SparkSession.builder.appName("penstock demo").getOrCreate()
    ssc = StreamingContext(spark.sparkContext, batchDuration=1)
    lines = ssc.tailStream(f"{root}/logs/*.log", name="logs")
    lines.foreachBatch(partial(write_word_counts, out=f"{root}/counts"))
    return ssc


def main(root: str) -> None:
    """Count until standard input ends, then finish what was received."""
    ssc = StreamingContext.getOrCreate(f"{root}/checkpoint", partial(create_context, root))
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
    main(sys.argv[1])
