"""Counts the words of a topic in windows, and writes each count exactly once to another topic.

    pip install 'penstock-spark[kafka]'        # kafka_exactly_once.py says how to start a broker
    python examples/kafka_windows.py localhost:9092 lines counts /tmp/counts

Every 2 s: the words of the last 10 s, as key and count. Killed and started again, it continues
where it was. A consumer with isolation.level=read_committed sees the counts of each window once.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from penstock.streaming import StreamingContext


def define(ssc: StreamingContext, brokers: str, source: str, target: str) -> None:
    """Define the program's stream and output."""
    conf = {"bootstrap.servers": brokers}
    words = ssc.kafkaStream([source], conf, "earliest", name="lines").flatMap(
        lambda record: [(word, 1) for word in record.value.decode().split()]
    )
    counts = words.reduceByKeyAndWindow(lambda a, b: a + b, None, 10, 2, numPartitions=2)
    counts.to_kafka(
        target,
        conf,
        key=lambda pair: pair[0],
        value=lambda pair: str(pair[1]),
        delivery="exactly_once",
        name="counts",
    )


def main(brokers: str, source: str, target: str, checkpoint: str) -> None:
    """Run it until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("kafka windows")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        return StreamingContext(spark.sparkContext, 1)

    ssc = StreamingContext.getOrCreate(checkpoint, create, recover="program")
    define(ssc, brokers, source, target)
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
