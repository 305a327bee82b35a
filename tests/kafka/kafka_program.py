"""The program that test_kills.py kills: numbered records of a topic into an idempotent sink.

    python kafka_program.py BROKERS TOPIC CHECKPOINT SINK

Each batch is written to SINK/batch=<id> as Parquet, replacing what an earlier try left there.
Prints a line for every batch that was committed.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from tests.driver_program import new_context, replace_batch, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(brokers: str, topic: str, checkpoint: str, sink: str) -> None:
    ssc = new_context("local[2]")
    ssc.checkpoint(checkpoint)

    def write(df: DataFrame, batch_id: int) -> None:
        replace_batch(df.selectExpr("cast(value as string) value"), batch_id, sink)

    conf = {"bootstrap.servers": brokers}
    ssc.kafkaStream([topic], conf, "earliest", columns=["value"], name="in").foreachBatch(write)
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
