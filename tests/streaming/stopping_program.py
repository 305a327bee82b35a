"""Stops programs in the ordinary way: one whose job runs, one that is idle, one that has no job.

Says on standard error where each stop begins and ends.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from pyspark import RDD, SparkContext

from penstock.streaming import StreamingContext
from tests.driver_program import new_spark
from tests.waiting import WAIT_S


def say(word: str) -> None:
    print(word, file=sys.stderr, flush=True)


def hang(record: Any) -> Any:
    time.sleep(600)
    return record


def stop(sc: SparkContext, kind: str) -> None:
    reached = threading.Event()
    ssc = StreamingContext(sc, 0.2)
    stream = ssc.queueStream([[1]] * 1000)
    if kind == "running":
        stream = stream.map(hang)

    def output(rdd: RDD[Any]) -> None:
        if kind == "running":
            reached.set()
        if kind != "none":
            rdd.collect()
        reached.set()

    stream.foreachRDD(output)
    ssc.start()
    assert reached.wait(WAIT_S)
    while kind == "running" and not sc.statusTracker().getActiveStageIds():
        time.sleep(0.05)
    say("stopping")
    ssc.stop(stopSparkContext=False)
    executors = sc._jsc.sc().statusTracker()
    while any(executor.numRunningTasks() for executor in executors.getExecutorInfos()):
        time.sleep(0.05)
    time.sleep(0.2)  # Spark logs the end of a killed task just after it
    say("stopped")


if __name__ == "__main__":
    sc = new_spark(log_level="WARN")
    for kind in ("running", "idle", "none"):
        stop(sc, kind)
    sc.stop()
