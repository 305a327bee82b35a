"""The program that fault tests kill: numbered lines from a tail into an idempotent sink.

    python program.py MASTER CHECKPOINT LOG_GLOB SINK [MOMENT [SIGNAL]]

Each batch is written to SINK/batch=<id> as Parquet, replacing what an earlier try left there.
Prints a line for every batch that was committed. At the MOMENT (tests.crash_steps) the process is
killed, without a chance to tidy up; or stopped until it is continued, if SIGNAL is SIGSTOP. Batches
and their log entries follow each other quickly, and few entries are kept.
"""

from __future__ import annotations

import signal
import sys
from functools import partial
from typing import TYPE_CHECKING

from penstock.streaming import StreamingContext
from tests.crash_steps import PROTOCOL, killed_at
from tests.driver_program import new_context, run

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RETAIN = 3
"""How many batches the logs keep."""


def create(master: str, log_glob: str, sink: str) -> StreamingContext:
    ssc = new_context(master, 0.1, retain=RETAIN)

    def write(df: DataFrame, batch_id: int) -> None:
        df.write.mode("overwrite").parquet(f"{sink}/batch={batch_id:08d}")

    ssc.tailStream(log_glob, name="lines").foreachBatch(write)
    return ssc


def main(
    master: str,
    checkpoint: str,
    log_glob: str,
    sink: str,
    moment: str | None = None,
    ending: str = "SIGKILL",
) -> None:
    with killed_at(moment, PROTOCOL, signal.Signals[ending]):
        run(StreamingContext.getOrCreate(checkpoint, partial(create, master, log_glob, sink)))


if __name__ == "__main__":
    main(*sys.argv[1:])
