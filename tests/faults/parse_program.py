"""The program that ``test_parse_kills`` kills: numbered lines, some of which the parser refuses.

    python parse_program.py CHECKPOINT LOG SINK

Each batch's values are written to SINK/<batch time>, replacing what an earlier try left there. Two
more outputs read the same values. Prints a line for every batch that was committed.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import RDD

from penstock.streaming import StreamingContext
from tests.driver_program import new_context, run


def is_bad(number: int) -> bool:
    return number % 7 == 3


def parse(line: str) -> int:
    number = int(line.removeprefix("line "))
    if is_bad(number):
        raise ValueError(f"{number} is bad")
    return number


def write(sink: str, time: datetime, values: RDD[int]) -> None:
    found = values.collect()
    if found:
        place = Path(sink, f"{time.timestamp():.3f}")
        place.with_suffix(".new").write_text("".join(f"{value}\n" for value in found))
        os.replace(place.with_suffix(".new"), place)


def count(values: RDD[Any]) -> None:
    values.count()


def create(log: str, sink: str) -> StreamingContext:
    ssc = new_context("local[3]")
    values = ssc.tailStream(log, name="lines").parse(parse, bad_records="dead_letter")
    values.foreachRDD(partial(write, sink))
    values.foreachRDD(count)
    values.window(0.9, 0.3).foreachRDD(count)
    return ssc


def main(checkpoint: str, log: str, sink: str) -> None:
    run(StreamingContext.getOrCreate(checkpoint, partial(create, log, sink), recover="program"))


if __name__ == "__main__":
    main(*sys.argv[1:])
