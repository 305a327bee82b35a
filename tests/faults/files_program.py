"""The program that test_file_kills.py kills: lines of new files into an idempotent sink.

    python files_program.py CHECKPOINT INBOX SINK

Each batch is written to SINK/batch=<id> as Parquet, replacing what an earlier try left there.
Prints a line for every batch that was committed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.faults.program import new_context, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(checkpoint: str, inbox: str, sink: str) -> None:
    settings = {"spark.streaming.fileStream.minRememberDuration": "2s"}
    ssc = new_context("local[2]", settings=settings)
    ssc.checkpoint(checkpoint)

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(f"{sink}/batch={batch_id:08d}")

    ssc.textFileStream(inbox, name="files").foreachBatch(write)
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
