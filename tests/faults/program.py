"""The program that fault tests kill: numbered lines from a tail into an idempotent sink.

    python program.py MASTER CHECKPOINT LOG_GLOB SINK [MOMENT [SIGNAL]]

Each batch is written to SINK/batch=<id> as Parquet, replacing what an earlier try left there.
Prints a line for every batch that was committed. At the MOMENT (tests.crash_steps) the process is
killed, without a chance to tidy up; or stopped until it is continued, if SIGNAL is SIGSTOP. Batches
and their log entries follow each other quickly, and few entries are kept.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext, StreamingListener
from tests.crash_steps import PROTOCOL, killed_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.core.events import StreamingListenerBatchCompleted

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.penstock.journal.compression": "lz4",
    "spark.streaming.receiverRestartDelay": "100ms",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


RETAIN = 3
"""How many batches the logs keep."""


class Report(StreamingListener):
    """Prints what was committed, for the test to see."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Print one line a batch."""
        batch = batchCompleted.batch_info
        if not batch.failed:
            print(f"committed {batch.batch_id} {batch.num_records}", flush=True)


def new_context(
    master: str,
    batch_s: float = 0.3,
    retain: int = 100,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> StreamingContext:
    """Return the context of a program that is killed, with short intervals."""
    conf = SparkConf().setMaster(master).setAppName("fault program")
    conf.setAll([*SETTINGS.items(), *settings.items()])
    conf.set("spark.sql.streaming.minBatchesToRetain", str(retain))
    return StreamingContext(SparkContext(conf=conf), batch_s)


def run(ssc: StreamingContext) -> None:
    """Run a program, reporting its batches, until it is killed."""
    ssc.sparkContext.setLogLevel("OFF")
    ssc.addStreamingListener(Report())
    ssc.start()
    ssc.awaitTermination()


def create(master: str, log_glob: str, sink: str) -> StreamingContext:
    ssc = new_context(master, 0.1, retain=RETAIN)

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(f"{sink}/batch={batch_id:08d}")

    ssc.tailStream(log_glob, name="lines").foreachBatch(write)
    return ssc


def main(
    master: str,
    checkpoint: str,
    log_glob: str,
    sink: str,
    moment: str | None = None,
    ending: str = "SIGKILL",
) -> None:
    with killed_at(moment, PROTOCOL, signal.Signals[ending]):
        run(StreamingContext.getOrCreate(checkpoint, partial(create, master, log_glob, sink)))


if __name__ == "__main__":
    main(*sys.argv[1:])
