"""Starts a program with state on a cluster, on a location that is not shared and on one that is.

python shared_location_program.py NOT_SHARED SHARED
"""

from __future__ import annotations

import sys

from pyspark import SparkConf, SparkContext

from penstock.errors import PenstockError
from penstock.streaming import StateSpec, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def count(key, value, state):  # type: ignore[no-untyped-def]
    total = (state.get() if state.exists() else 0) + value
    state.update(total)
    return key, total


def start(sc: SparkContext, location: str) -> None:
    clock = ManualClock(1_000_000)
    ssc = StreamingContext.getOrCreate(
        location, lambda: StreamingContext(sc, 1, clock=clock), recover="program"
    )
    seen: list[object] = []
    pairs = ssc.queueStream([[("a", 1)], [("a", 1)]])
    counts = pairs.mapWithState(StateSpec.function(count).numPartitions(2))
    counts.foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stepper = Stepper(ssc, clock)
    try:
        ssc.start()
        stepper.step(2)
        print("counted", seen[-1], flush=True)
    except PenstockError as error:
        print(f"refused {type(error).__name__}: {error}".splitlines()[0], flush=True)
    finally:
        ssc.stop(stopSparkContext=False)


if __name__ == "__main__":
    conf = SparkConf().setMaster("local-cluster[2,1,512]").setAppName("shared")
    sc = SparkContext(conf=conf.setAll(list(SETTINGS.items())))
    sc.setLogLevel("OFF")
    for location in sys.argv[1:]:
        start(sc, location)
    sc.stop()
