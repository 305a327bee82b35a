"""One side of the state benchmark. Usage: _state_program.py penstock|pyspark KEYS BATCHES WARM.

The last line of output is JSON: the median and slowest of BATCHES batches after WARM ones, and how
long it took until the initial state was there.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
import warnings
from typing import Any

from harness import spark_context
from pyspark import RDD, SparkContext

from penstock.streaming import State, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

_UPDATES = 1_000


def _pairs(sc: SparkContext, keys: int, batches: int) -> list[RDD[tuple[str, int]]]:
    chance = random.Random(1)
    return [
        sc.parallelize([(_key(chance.randrange(keys)), 1) for _ in range(_UPDATES)], 2)
        for _ in range(batches)
    ]


def _key(number: int) -> str:
    return f"user-{number:09d}"


def _initial(sc: SparkContext, keys: int) -> RDD[tuple[str, int]]:
    return sc.parallelize(range(keys), 2).map(lambda number: (f"user-{number:09d}", 0))


def _count(rdd: RDD[Any]) -> None:
    rdd.count()  # pyspark.streaming takes what an output returns for an RDD


def _run_penstock(sc: SparkContext, keys: int, batches: int) -> tuple[float, list[float]]:
    def add(key: str, value: int, state: State[int]) -> tuple[str, int]:
        state.update(value + (state.get() if state.exists() else 0))
        return (key, state.get())

    clock = ManualClock(1_000_000)
    ssc = StreamingContext(sc, 1, clock=clock)
    ssc.checkpoint(tempfile.mkdtemp(prefix="checkpoint-"))
    pairs = ssc.queueStream(_pairs(sc, keys, batches))
    mapped = pairs.mapWithState(add, initialState=_initial(sc, keys), timeout=10**6)
    mapped.foreachRDD(_count)
    stepper = Stepper(ssc, clock)
    start_s = time.perf_counter()
    ssc.start()
    load_s = time.perf_counter() - start_s
    taken_ms = []
    for _ in range(batches):
        start_s = time.perf_counter()
        stepper.step()
        taken_ms.append((time.perf_counter() - start_s) * 1000)
    return load_s, taken_ms


def _run_pyspark(sc: SparkContext, keys: int, batches: int) -> tuple[float, list[float]]:
    warnings.simplefilter("ignore", FutureWarning)  # it is deprecated
    from pyspark.streaming import StreamingContext as Peer
    from pyspark.streaming import StreamingListener

    taken_ms: list[float] = []
    done = threading.Event()

    class Timer(StreamingListener):
        def onBatchCompleted(self, batchCompleted: Any) -> None:
            taken_ms.append(float(batchCompleted.batchInfo().processingDelay()))
            if len(taken_ms) == batches:
                done.set()

    start_s = time.perf_counter()
    initial = _initial(sc, keys)
    initial.cache().count()
    load_s = time.perf_counter() - start_s
    ssc = Peer(sc, 1)
    ssc.checkpoint(tempfile.mkdtemp(prefix="checkpoint-"))
    ssc.addStreamingListener(Timer())
    pairs = ssc.queueStream(_pairs(sc, keys, batches))
    counts = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0), initialRDD=initial)
    counts.foreachRDD(_count)
    ssc.start()
    done.wait()
    return load_s, taken_ms[:batches]


def main() -> None:
    """Run one side and print what it took."""
    side, keys, batches, warm = sys.argv[1], *map(int, sys.argv[2:5])
    sc = spark_context("local[2]")
    run = _run_penstock if side == "penstock" else _run_pyspark
    load_s, taken_ms = run(sc, keys, batches + warm)
    counted = taken_ms[warm:]
    figures = {
        "load_s": load_s,
        "median_ms": statistics.median(counted),
        "slowest_ms": max(counted),
    }
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
