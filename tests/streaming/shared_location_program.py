"""Starts a program with state on a cluster, on a location that is not shared and on one that is.

Then it starts the program again where executors use another Python.

python shared_location_program.py NOT_SHARED SHARED PYTHON
"""

from __future__ import annotations

import sys

from pyspark import SparkContext

from penstock.errors import PenstockError
from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.driver_program import new_spark, say


def count(new: list[int], total: int | None) -> int:
    return sum(new) + (total or 0)


def start(sc: SparkContext, location: str) -> None:
    clock = ManualClock(1_000_000)
    ssc = StreamingContext.getOrCreate(
        location, lambda: StreamingContext(sc, 1, clock=clock), recover="program"
    )
    seen: list[object] = []
    pairs = ssc.queueStream([[("a", 1)], [("a", 1)]])
    pairs.updateStateByKey(count, 2).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stepper = Stepper(ssc, clock)
    try:
        ssc.start()
        stepper.step(2)
        say("counted", seen[-1])
    except PenstockError as error:
        say(f"refused {type(error).__name__}: {error}".splitlines()[0])
    finally:
        ssc.stop(stopSparkContext=False)


if __name__ == "__main__":
    # The tests' own daemon imports penstock before any task does.
    sc = new_spark("local-cluster[2,1,512]", {"spark.python.daemon.module": "pyspark.daemon"})
    not_shared, shared, python = sys.argv[1:]
    start(sc, not_shared)
    start(sc, shared)
    sc.pythonExec = python
    start(sc, shared)
    sc.stop()
