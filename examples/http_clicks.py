r"""Receives clicks over HTTP and writes them as Parquet; no click that was answered is lost.

    pip install 'penstock-spark[http]'
    python examples/http_clicks.py 8080 /tmp/clicks

    curl -H 'Content-Type: application/x-ndjson' -H 'Idempotency-Key: 1' \
        --data-binary '{"page": "/a", "user": "kim", "time": "2026-01-02T03:04:05.678Z"}' http://127.0.0.1:8080/
    python -c 'import pandas; print(pandas.read_parquet("/tmp/clicks/out"))'

The answer comes when the click is on disk. A client that got none repeats the request with its key:
it is stored once.
"""

from __future__ import annotations

import sys
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from penstock.streaming import StreamingContext


def write(clicks: DataFrame, batch_id: int, out: str) -> None:
    """Write a batch under its id.

    A batch that was cut off by a crash runs again, with the same id and the same clicks. It
    overwrites what its first attempt left, so each click is there once. Appending would double it.
    """
    if not clicks.isEmpty():  # or each idle second would leave a folder
        clicks.write.mode("overwrite").parquet(f"{out}/batch={batch_id}")


def main(port: str, folder: str) -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("http clicks")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        # A click that lacks a column or has another type is refused with 400, and names it.
        schema = "page string not null, user string, time timestamp[us, UTC]"
        clicks = ssc.httpStream(int(port), schema=schema, name="clicks")
        clicks.foreachBatch(partial(write, out=f"{folder}/out"), name="clicks")
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
