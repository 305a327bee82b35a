"""The program that test_interrupt.py interrupts: lines of a followed file, collected.

    python interrupted_program.py CHECKPOINT LOG SINK

A job hangs, and says that it does, while there is a file ``hang`` beside the sink.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from pyspark import RDD, SparkConf, SparkContext

from penstock.streaming import StreamingContext

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def hang(folder: Path, line: str) -> str:
    while (folder / "hang").exists():
        (folder / "hang.reached").touch()
        time.sleep(0.1)
    return line


def write(sink: Path, rdd: RDD[str]) -> None:
    lines = rdd.collect()
    if lines:
        with sink.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))


def main(checkpoint: str, log: str, sink: str) -> None:
    conf = (
        SparkConf().setMaster("local[2]").setAppName("interrupted").setAll(list(SETTINGS.items()))
    )
    sc = SparkContext(conf=conf)
    sc.setLogLevel("WARN")
    ssc = StreamingContext(sc, batchDuration=0.5)
    ssc.checkpoint(checkpoint)
    lines = ssc.tailStream(log, name="lines").map(partial(hang, Path(sink).parent))
    lines.foreachRDD(partial(write, Path(sink)))
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
