"""The program that test_interrupt.py interrupts: lines of a followed file, collected.

    python interrupted_program.py CHECKPOINT LOG SINK

A job hangs, and says that it does, while there is a file ``hang`` beside the sink.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path

from pyspark import RDD

from penstock.streaming import StreamingContext
from penstock.streaming.context import context
from tests.driver_program import new_spark


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
    ssc = StreamingContext(new_spark(log_level="WARN"), batchDuration=0.5)
    context._PATIENCE_S = 2.0  # the time that a job has before it is cancelled
    ssc.checkpoint(checkpoint)
    lines = ssc.tailStream(log, name="lines").map(partial(hang, Path(sink).parent))
    lines.foreachRDD(partial(write, Path(sink)))
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
