"""One program of the ingest benchmark: a socket's lines, counted batch by batch.

Usage: _ingest_program.py PROGRAM PORT CHECKPOINT WARMUP_S SECONDS. The last line of
output is JSON: the records of the batches that were counted within SECONDS after WARMUP_S, and the
seconds that they took. It ends without stopping Spark, whose own stop can hang under full load.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from harness import spark_context

_counted: list[tuple[float, int]] = []
"""When each batch was counted (monotonic seconds), and its records."""


def _note(count: int) -> None:
    _counted.append((time.monotonic(), count))


def _penstock(checkpoint: str, port: int, *, dataframe: bool) -> Any:
    from penstock.streaming import StreamingContext

    ssc = StreamingContext(spark_context("local[3]"), 1)
    ssc.checkpoint(checkpoint)
    lines = ssc.socketTextStream("127.0.0.1", port)
    if dataframe:
        lines.foreachBatch(lambda df, batch_id: _note(df.count()))
    else:
        lines.foreachRDD(lambda rdd: _note(rdd.count()))
    return ssc


def _pyspark(checkpoint: str, port: int, *, in_jvm: bool) -> Any:
    warnings.simplefilter("ignore", FutureWarning)  # DStreams are deprecated
    from pyspark import StorageLevel
    from pyspark.streaming import StreamingContext

    settings = {"spark.streaming.receiver.writeAheadLog.enable": "true"}
    ssc = StreamingContext(spark_context("local[3]", settings), 1)
    ssc.checkpoint(checkpoint)
    # With a write-ahead log a second replica has no use, says Spark's guide.
    lines = ssc.socketTextStream("127.0.0.1", port, StorageLevel.MEMORY_AND_DISK)
    if in_jvm:
        lines.foreachRDD(lambda rdd: _note(rdd._jrdd.count()))
    else:
        lines.foreachRDD(lambda rdd: _note(rdd.count()))
    return ssc


_PROGRAMS: dict[str, Callable[[str, int], Any]] = {
    "ours-dataframe": partial(_penstock, dataframe=True),
    "ours-python": partial(_penstock, dataframe=False),
    "peer-jvm": partial(_pyspark, in_jvm=True),
    "peer-python": partial(_pyspark, in_jvm=False),
}


def _steady(since_s: float) -> dict[str, float]:
    """Return records and seconds from the first batch that ended after ``since_s`` on."""
    steady = [entry for entry in _counted if entry[0] >= since_s]
    if len(steady) < 3:
        raise SystemExit(f"only {len(steady)} batches ended after the warm-up: {_counted}")
    seconds = steady[-1][0] - steady[0][0]
    return {"records": sum(count for _, count in steady[1:]), "seconds": seconds}


def main() -> None:
    """Run the program for the given time and print what it counted."""
    name, port, checkpoint, warmup_s, seconds = sys.argv[1:]
    ssc = _PROGRAMS[name](checkpoint, int(port))
    started_s = time.monotonic()
    ssc.start()
    ssc.awaitTerminationOrTimeout(float(warmup_s) + float(seconds))
    batches = [(round(at - started_s, 2), count) for at, count in _counted]
    print("batches (end in s, records):", batches, file=sys.stderr)
    print(json.dumps(_steady(started_s + float(warmup_s))), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
