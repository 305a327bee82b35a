"""The program that test_window_kills.py kills: windows over lines of growing files.

    python window_program.py CHECKPOINT FOLDER SINK

Each window is a file SINK/<name>-<time in ms>, replacing what an earlier try left there. Prints a
line for every batch that was committed.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkConf, SparkContext

from penstock.streaming import StreamingContext, StreamingListener

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark import RDD

    from penstock.streaming.core.events import StreamingListenerBatchCompleted


class Report(StreamingListener):
    """Prints what was committed, for the test to see."""

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Print one line a batch."""
        if not batchCompleted.batch_info.failed:
            print(f"committed {batchCompleted.batch_info.batch_id}", flush=True)


def write(time: datetime, rdd: RDD[str], name: str, sink: str) -> None:
    """Replace a window's file."""
    file = Path(sink) / f"{name}-{round(time.timestamp() * 1000)}"
    coming = file.with_name(f".{file.name}")
    coming.write_text("".join(f"{line}\n" for line in rdd.collect()))
    os.replace(coming, file)


def main(checkpoint: str, folder: str, sink: str) -> None:
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.default.parallelism": "2",
    }
    conf = SparkConf().setMaster("local[3]").setAppName("windows").setAll(settings.items())
    sc = SparkContext(conf=conf)
    sc.setLogLevel("OFF")
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(checkpoint)
    lines = ssc.tailStream(f"{folder}/app.log*", name="lines")
    windows = {
        "tumbling": lines.window(2, 2),
        "sliding": lines.window(3, 1),
        "counted": lines.countByWindow(5, 1).map(str),
    }
    for name, window in windows.items():
        window.foreachRDD(partial(write, name=name, sink=sink))
    ssc.addStreamingListener(Report())
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
