"""Follows log files, as `tail -F` does, and writes their lines as columns in Parquet: each once.

    mkdir -p /tmp/logs
    while sleep 0.2; do echo "$(date -Is) GET /page$((RANDOM % 9)) 200" >> /tmp/logs/a.log; done &
    python examples/log_files.py '/tmp/logs/*.log' /tmp/access

    python -c 'import pandas; print(pandas.read_parquet("/tmp/access/out"))'

Files may be rotated, truncated and created while it runs. The position in each file is durable
together with the lines up to it: after `kill -9` no line is missing and none comes twice.
"""

from __future__ import annotations

import sys
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.streaming import StreamingContext

LINE = r"^(\S+) (\S+) (\S+) (\d+)$"
"""When, method, path, status."""


def write(lines: DataFrame, batch_id: int, out: str) -> None:
    """Write a batch under its id, in place of what an attempt left that was cut off."""
    when, method, path, status = (F.regexp_extract("value", LINE, n) for n in range(1, 5))
    requests = lines.where(F.col("value").rlike(LINE)).select(
        F.to_timestamp(when).alias("time"),
        method.alias("method"),
        path.alias("path"),
        status.cast("int").alias("status"),
    )
    if not lines.isEmpty():  # or each idle second would leave a folder
        requests.write.mode("overwrite").parquet(f"{out}/batch={batch_id}")


def main(files: str, folder: str) -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("log files")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        # The lines stay in Parquet and in the JVM: none of them becomes a Python object.
        lines = ssc.tailStream(files, name="logs")
        lines.foreachBatch(partial(write, out=f"{folder}/out"), name="requests")
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
