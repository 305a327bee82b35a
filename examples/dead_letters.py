r"""Keeps the lines that its parser refuses, and takes them in once the parser is better.

    mkdir -p /tmp/dead && printf '%s\n' '{"page": "/a"}' '/b' >> /tmp/dead/events.log
    python examples/dead_letters.py /tmp/dead/events.log /tmp/dead       # warns of one bad record
    penstock journal cat /tmp/dead/checkpoint events-dead

    # Stop it with Ctrl-C. The better parser also reads a plain page. Feed the bad line back:
    penstock journal replay /tmp/dead/checkpoint events-dead
    python examples/dead_letters.py /tmp/dead/events.log /tmp/dead plain
    cat /tmp/dead/out/pages-*/part-*             # ('/a', 1) and ('/b', 1)

Without `bad_records` a line that cannot be parsed fails its batch, which stops the program.
"""

from __future__ import annotations

import json
import operator
import sys

from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext


def page_of_json(line: str) -> str:
    """Return the page of an event; whatever this raises makes the line a bad record."""
    return str(json.loads(line)["page"])


def page_of_any(line: str) -> str:
    """Return the page of an event, which may also be the line itself."""
    return line if line.startswith("/") else page_of_json(line)


def main(file: str, folder: str, format: str = "json") -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("dead letters")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        events = ssc.tailStream(file, name="events")
        # A bad line is durable in the folder events-dead before its batch is done, once, also when
        # the batch runs again. It is kept until it is replayed.
        parser = page_of_json if format == "json" else page_of_any
        pages = events.parse(parser, bad_records="dead_letter")
        counts = pages.map(lambda page: (page, 1)).reduceByKey(operator.add)
        # A folder for each batch, which a batch that runs again finds and leaves.
        counts.saveAsTextFiles(f"{folder}/out/pages")
        return ssc

    # "program": the streams are defined anew at each start, here with another parser.
    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
