"""Counts the words of growing log files: for each batch, a folder of Parquet with its counts.

    mkdir -p /tmp/logs
    while sleep 0.2; do echo "to be or not to be" >> /tmp/logs/a.log; done &
    python examples/log_words.py '/tmp/logs/*.log' /tmp/words

    python -c 'import pandas; t = pandas.read_parquet("/tmp/words/counts")
    print(t.groupby("word")["count"].sum())'

`penstock demo` runs this program, kills it with `kill -9`, and compares the counts with a direct
count over the files. The program needs no code for that: a batch that was cut off runs again with
the same records and the same id, and replaces what it had written.
"""

from __future__ import annotations

import sys
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (PySpark's own name for it)

from penstock.streaming import StreamingContext


def write_counts(lines: DataFrame, batch_id: int, out: str) -> None:
    """Write how often each word occurs in a batch, in place of what an earlier attempt wrote."""
    words = lines.select(F.explode(F.split("value", r"\s+")).alias("word")).where("word <> ''")
    if not lines.isEmpty():  # or each idle second would leave a folder
        words.groupBy("word").count().write.mode("overwrite").parquet(f"{out}/batch={batch_id}")


def main(files: str, folder: str) -> None:
    """Run until it is stopped."""

    def create() -> StreamingContext:
        spark = (
            SparkSession.builder.appName("log words")
            # Spark's progress bar would break the lines that the program logs.
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")  # a batch has few words
            # SIGTERM ends it when the records that were received are counted.
            .config("spark.streaming.stopGracefullyOnShutdown", "true")
            .getOrCreate()
        )
        ssc = StreamingContext(spark.sparkContext, batchDuration=1)
        lines = ssc.tailStream(files, name="logs")
        lines.foreachBatch(partial(write_counts, out=f"{folder}/counts"), name="counts")
        return ssc

    ssc = StreamingContext.getOrCreate(f"{folder}/checkpoint", create, recover="program")
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
