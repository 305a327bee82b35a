"""Counts the words that a TCP server sends: those of each second, and all so far.

    nc -lk 9999                                                  # type words here
    python examples/word_count.py 127.0.0.1 9999 /tmp/words      # in another terminal

The first program of Spark's streaming guide. Only its import and its checkpoint location are
penstock's. Kill it with `kill -9` and start it again: the totals continue.
"""

from __future__ import annotations

import operator
import sys

from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext


def add(counts: list[int], total: int | None) -> int:
    """Return a word's new total; called for each word that has a total or new counts."""
    return sum(counts) + (total or 0)


def main(host: str, port: str, checkpoint: str) -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("word count")
            # Spark's progress bar would break the lines that pprint prints.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        # A socket has no acks: what was sent and is not in a batch yet is lost when the program is
        # killed. http_clicks.py and mqtt_sensors.py have sources that lose nothing.
        lines = ssc.socketTextStream(host, int(port), name="lines")
        ones = lines.flatMap(str.split).map(lambda word: (word, 1))
        ones.reduceByKey(operator.add).pprint()
        ones.updateStateByKey(add, name="totals").pprint()
        return ssc

    # "program": the streams are defined by create() at each start, so the code above may change.
    # Offsets and totals are in the checkpoint location.
    ssc = StreamingContext.getOrCreate(checkpoint, create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
