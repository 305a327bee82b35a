r"""Counts clicks by minute and page with Structured Streaming, from a journal that never stops.

    pip install 'penstock-spark[http]'
    penstock ingest http --port 8080 --journal /tmp/counts/journal --stream clicks \
        --schema 'page string, time timestamp[us, UTC]' &
    python examples/structured_journal.py /tmp/counts

    for time in 12:00:00Z 12:00:01Z 12:01:00Z 12:02:30Z; do
        curl -H 'Content-Type: application/json' http://127.0.0.1:8080/ \
            -d "{\"page\": \"/a\", \"time\": \"2026-01-02T$time\"}"; done
    python -c 'from penstock.structured.sinks import published_files; import pandas
    print(pandas.concat(map(pandas.read_parquet, published_files("/tmp/counts/out"))))'

The endpoint accepts clicks while this query is stopped, upgraded or killed.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.structured import register
from penstock.structured.sinks import ParquetSink


def main(folder: str) -> None:
    """Run until it is stopped."""
    spark = (
        SparkSession.builder.appName("structured journal")
        # Spark's progress bar would break the lines that the program logs.
        .config("spark.ui.showConsoleProgress", "false")
        # Each partition of the state costs files in each batch; the default of 200 is for clusters.
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    register(spark)  # once in a session
    clicks = (
        spark.readStream.format("penstock")
        .option("journal", f"{folder}/journal")
        .option("stream", "clicks")
        # Records are kept until this consumer has committed them, so its name belongs to this
        # query and its checkpoint alone.
        .option("consumer", "counts")
        .option("backpressure.enabled", "true")
        .load()
    )
    # Event time: a minute is counted when clicks have come that are 30 s past its end. A click
    # that comes later than that is left out.
    counts = (
        clicks.withWatermark("time", "30 seconds")
        .groupBy(F.window("time", "1 minute").alias("minute"), "page")
        .count()
        .select(F.col("minute.start").alias("minute"), "page", "count")
    )
    # The sink publishes a batch once, also when it runs again after a crash.
    sink = ParquetSink(f"{folder}/out")
    query = (
        counts.writeStream.foreachBatch(sink)
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="1 second")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
