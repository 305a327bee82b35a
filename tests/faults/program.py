"""The program that fault tests kill: numbered lines of a source into an idempotent sink.

    python program.py MASTER CHECKPOINT SINK STREAM [MOMENT [SIGNAL]]

STREAM is JSON: the context's method that makes the stream, and its arguments. Each batch is written
to SINK/batch=<id>.parquet, replacing what an earlier try left there. Prints a line for every
batch that was committed. At the MOMENT (tests.crash_steps) the process is killed, without a chance
to tidy up; or stopped until it is continued, if SIGNAL is SIGSTOP. Batches and their log entries
follow each other quickly, and few entries are kept.
"""

from __future__ import annotations

import json
import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from penstock.streaming import StreamingContext
from tests.crash_steps import PROTOCOL, killed_at
from tests.driver_program import new_context, replace_batch, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RETAIN = 3
"""How many batches the logs keep."""
SETTINGS = {"spark.streaming.fileStream.minRememberDuration": "2s"}


def write(df: DataFrame, batch_id: int, sink: str) -> None:
    replace_batch(df.selectExpr("cast(value as string) as value"), batch_id, sink)


def create(master: str, sink: str, stream: str) -> StreamingContext:
    ssc = new_context(master, 0.1, RETAIN, SETTINGS)
    method, arguments = json.loads(stream)
    getattr(ssc, method)(**arguments).foreachBatch(partial(write, sink=sink))
    return ssc


def main(
    master: str,
    checkpoint: str,
    sink: str,
    stream: str,
    moment: str | None = None,
    ending: str = "SIGKILL",
) -> None:
    with killed_at(moment, PROTOCOL, signal.Signals[ending]):
        run(StreamingContext.getOrCreate(checkpoint, partial(create, master, sink, stream)))


if __name__ == "__main__":
    main(*sys.argv[1:])
