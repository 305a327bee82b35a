"""The program that test_file_kills.py kills: lines of new files into an idempotent sink.

    python files_program.py CHECKPOINT INBOX SINK

Each batch is written to SINK/batch=<id> as Parquet, replacing what an earlier try left there.
Prints a line for every batch that was committed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext, StreamingListener

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from penstock.streaming.core.events import StreamingListenerBatchCompleted


class Report(StreamingListener):
    """Prints what was committed, for the test to see."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Print one line a batch."""
        if not batchCompleted.batch_info.failed:
            print(f"committed {batchCompleted.batch_info.batch_id}", flush=True)


def main(checkpoint: str, inbox: str, sink: str) -> None:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.streaming.fileStream.minRememberDuration": "2s",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setMaster("local[2]").setAppName("files").setAll(settings.items())
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, 0.3)
    ssc.checkpoint(checkpoint)

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(f"{sink}/batch={batch_id:08d}")

    ssc.textFileStream(inbox, name="files").foreachBatch(write)
    ssc.addStreamingListener(Report())
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
