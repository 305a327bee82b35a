"""The program that test_file_kills.py kills: lines of new files into an idempotent sink.

    python files_program.py CHECKPOINT INBOX SINK

Each batch is written to SINK/batch=<id> as Parquet, replacing what an earlier try left there.
Prints a line for every batch that was committed.
"""

from __future__ import annotations

import sys
from functools import partial

from tests.driver_program import new_context, replace_batch, run


def main(checkpoint: str, inbox: str, sink: str) -> None:
    settings = {"spark.streaming.fileStream.minRememberDuration": "2s"}
    ssc = new_context(settings=settings)
    ssc.checkpoint(checkpoint)
    ssc.textFileStream(inbox, name="files").foreachBatch(partial(replace_batch, sink=sink))
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
