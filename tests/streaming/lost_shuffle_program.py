"""The program of test_lost_shuffle.py: counts records, and loses the files of the batch's shuffle.

    python lost_shuffle_program.py LOCATION

Says the counts of the first batch that has records, and whether files were lost.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from penstock.streaming import State, StreamingContext
from tests.driver_program import new_spark, run, say

RECORDS = 20_000
WIDTH = 1000
"""So many characters each: more than the JVM reads ahead while the first one is processed."""


def lose_files(mark: Path) -> None:
    """Delete all shuffle files; one that is open is read to its end."""
    for folder in os.environ["SPARK_LOCAL_DIRS"].split(","):
        for file in Path(folder).glob("*/shuffle_*.data"):
            file.unlink()
            mark.touch()


def main(location: str) -> None:
    mark = Path(location, "lost")

    def count(key: int, value: str, state: State[int]) -> None:
        if not mark.exists():
            lose_files(mark)
        state.update(1 + (state.get() if state.exists() else 0))

    def tell(rdd: Any) -> None:
        if counts := sorted(rdd.collect()):
            say("counts", counts, mark.exists())

    sc = new_spark()
    ssc = StreamingContext(sc, 0.3)
    ssc.checkpoint(f"{location}/checkpoint")
    pairs = [(number % 3, f"{number:0{WIDTH}}") for number in range(RECORDS)]
    stream = ssc.queueStream([sc.parallelize(pairs, 2)])
    stream.mapWithState(count, numPartitions=1).stateSnapshots().foreachRDD(tell)
    run(ssc)


if __name__ == "__main__":
    main(*sys.argv[1:])
