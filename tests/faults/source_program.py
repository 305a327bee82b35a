"""The Spark side of a storm of faults: a stream for each source, and what else writes into it.

    python source_program.py MASTER CHECKPOINT SINK RECEIVERS

RECEIVERS is JSON: for each stream's name the class's name in penstock.receivers, and its arguments.
Each batch is written to SINK/<stream>/batch=<id>.parquet, replacing what an earlier try left
there. Prints a line a batch.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import TYPE_CHECKING

from penstock import receivers
from penstock.streaming import StreamingContext
from tests.driver_program import new_context, replace_batch, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


BATCH_S = 1.0
"""Each writes files of every source: most of the processors are left to what recovers."""


def write(df: DataFrame, batch_id: int, sink: str) -> None:
    text = "payload" if "payload" in df.columns else "value"
    replace_batch(df.selectExpr(f"cast({text} as string) as value"), batch_id, sink)


def create(master: str, sink: str, specs: str) -> StreamingContext:
    ssc = new_context(master, BATCH_S)
    for name, (kind, arguments) in json.loads(specs).items():
        stream = ssc.receiverStream(getattr(receivers, kind)(**arguments), name=name)
        stream.foreachBatch(partial(write, sink=f"{sink}/{name}"))
    return ssc


def main(master: str, checkpoint: str, sink: str, specs: str) -> None:
    run(StreamingContext.getOrCreate(checkpoint, partial(create, master, sink, specs)))


if __name__ == "__main__":
    main(*sys.argv[1:])
