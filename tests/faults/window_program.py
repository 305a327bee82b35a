"""The program that test_window_kills.py kills: windows over lines of growing files.

    python window_program.py CHECKPOINT FOLDER SINK

Each window is a file SINK/<name>-<time in ms>, replacing what an earlier try left there. Prints a
line for every batch that was committed.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.driver_program import new_context, run

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark import RDD


def write(time: datetime, rdd: RDD[str], name: str, sink: str) -> None:
    """Replace a window's file."""
    file = Path(sink) / f"{name}-{round(time.timestamp() * 1000)}"
    coming = file.with_name(f".{file.name}")
    coming.write_text("".join(f"{line}\n" for line in rdd.collect()))
    os.replace(coming, file)


def main(checkpoint: str, folder: str, sink: str) -> None:
    ssc = new_context("local[3]", 1, settings={"spark.default.parallelism": "2"})
    ssc.checkpoint(checkpoint)
    lines = ssc.tailStream(f"{folder}/app.log*", name="lines")
    windows = {
        "tumbling": lines.window(2, 2),
        "sliding": lines.window(3, 1),
        "counted": lines.countByWindow(5, 1).map(str),
    }
    for name, window in windows.items():
        window.foreachRDD(partial(write, name=name, sink=sink))
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
