"""The Spark side of a storm of faults: a receiver's records, and what else writes the stream.

    python source_program.py MASTER CHECKPOINT SINK RECEIVER

RECEIVER is JSON: the class's name in penstock.receivers, and its arguments. Each batch is written
to SINK/batch=<id> as Parquet, replacing what an earlier try left there. Prints a line a batch.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from program import new_context, run  # this file is run by its path

from penstock import receivers
from penstock.streaming import StreamingContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def create(master: str, sink: str, receiver: str) -> StreamingContext:
    ssc = new_context(master)

    def write(df: DataFrame, batch_id: int) -> None:
        text = "payload" if "payload" in df.columns else "value"
        lines = df.selectExpr(f"cast({text} as string) as value")
        lines.write.mode("overwrite").parquet(f"{sink}/batch={batch_id:08d}")

    kind, arguments = json.loads(receiver)
    stream = ssc.receiverStream(getattr(receivers, kind)(**arguments), name="records")
    stream.foreachBatch(write)
    return ssc


def main(master: str, checkpoint: str, sink: str, receiver: str) -> None:
    run(StreamingContext.getOrCreate(checkpoint, partial(create, master, sink, receiver)))


if __name__ == "__main__":
    main(*sys.argv[1:])
