"""Joins what users looked at with what they ordered, in sliding windows: revenue by page.

    mkdir -p /tmp/shop
    python examples/windows_joins.py /tmp/shop/events.log /tmp/shop

    echo 'view kim /shoes' >> /tmp/shop/events.log
    echo 'order kim 59.90' >> /tmp/shop/events.log
    cat /tmp/shop/out/revenue-*/part-*           # after up to 10 s: ('/shoes', 59.9)

A window is the last 60 s of batches, every 10 s. It counts when a line was processed, not a time
that the line has: for event time see structured_journal.py.
"""

from __future__ import annotations

import operator
import sys

from pyspark.sql import SparkSession

from penstock.streaming import DStream, StreamingContext


def of_kind(events: DStream, kind: str) -> DStream:
    """Return the events of a kind, as pairs of user and value."""
    return events.filter(lambda event: event[0] == kind).map(lambda event: (event[1], event[2]))


def main(file: str, folder: str, window_s: str = "60", slide_s: str = "10") -> None:
    """Run until it is stopped."""
    window, slide = int(window_s), int(slide_s)

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("windows and joins")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        events = ssc.tailStream(file, name="events").map(str.split)
        # One view counts once for each user and page, however often the page was reloaded.
        views = of_kind(events, "view").window(window, slide).transform(lambda rdd: rdd.distinct())
        orders = of_kind(events, "order").mapValues(float)
        spent = orders.reduceByKeyAndWindow(operator.add, None, window, slide)
        revenue = spent.join(views).map(lambda joined: (joined[1][1], joined[1][0]))
        # A folder for each window, named by its time. It is renamed into place when it is whole;
        # a batch that runs again finds it and leaves it. After a restart, windows continue with
        # the records of the batches before it, from the journal.
        revenue.reduceByKey(operator.add).saveAsTextFiles(f"{folder}/out/revenue")
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
