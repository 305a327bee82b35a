"""Batch times of DStream operations on one engine.

Usage: _dstream_operations.py ours|ours-program|peer BATCHES [OPERATION ...]. Each operation is a
program of its own over the same batches of a queue, all in one SparkContext, and is stepped by a
manual clock: from the tick until its output has counted the result, ours until the batch is
committed, too. ``ours-program`` writes no graph checkpoints. The last line of output is JSON: the
median milliseconds of a batch by operation.
"""

from __future__ import annotations

import json
import operator
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

from harness import spark_context
from harness.counted import count, wait_counted
from pyspark import SparkContext

_RECORDS = 20_000
_KEYS = 2_000
_PARTITIONS = 2
_WARMUP = 8
"""Batches before the measurement: the longest window is full by then."""
_STEP_S = 60.0


def _add_up(values: list[int], total: int | None) -> int:
    return sum(values) + (total or 0)


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "map": lambda pairs: pairs.map(lambda pair: (pair[0], pair[1] + 1)),
    "filter": lambda pairs: pairs.filter(lambda pair: pair[1] % 2),
    "flatMap": lambda pairs: pairs.flatMap(lambda pair: (pair[0], pair[1])),
    "mapPartitions": lambda pairs: pairs.mapPartitions(lambda part: [sum(1 for _ in part)]),
    "reduce": lambda pairs: pairs.map(lambda pair: pair[1]).reduce(operator.add),
    "count": lambda pairs: pairs.count(),
    "countByValue": lambda pairs: pairs.map(lambda pair: pair[0]).countByValue(),
    "reduceByKey": lambda pairs: pairs.reduceByKey(operator.add, _PARTITIONS),
    "groupByKey": lambda pairs: pairs.groupByKey(_PARTITIONS),
    "union": lambda pairs: pairs.union(pairs.mapValues(abs)),
    "repartition": lambda pairs: pairs.repartition(_PARTITIONS),
    "transform": lambda pairs: pairs.transform(lambda rdd: rdd.distinct(_PARTITIONS)),
    "join": lambda pairs: pairs.reduceByKey(max, _PARTITIONS).join(
        pairs.reduceByKey(min, _PARTITIONS), _PARTITIONS
    ),
    "cogroup": lambda pairs: pairs.cogroup(pairs.filter(lambda pair: pair[1] % 2), _PARTITIONS),
    "window": lambda pairs: pairs.window(5, 1),
    "countByWindow": lambda pairs: pairs.countByWindow(5, 1),
    "reduceByKeyAndWindow": lambda pairs: pairs.reduceByKeyAndWindow(
        operator.add, None, 5, 1, _PARTITIONS
    ),
    "reduceByKeyAndWindow, inverse": lambda pairs: pairs.reduceByKeyAndWindow(
        operator.add, operator.sub, 5, 1, _PARTITIONS
    ),
    "updateStateByKey": lambda pairs: pairs.updateStateByKey(_add_up, _PARTITIONS),
}


@contextmanager
def _ours(
    sc: SparkContext, recover: Literal["graph", "program"]
) -> Iterator[tuple[Any, Callable[[], object]]]:
    from penstock.streaming import StreamingContext
    from penstock.testing import ManualClock
    from penstock.testing.stepper import Stepper

    clock = ManualClock()
    ssc = StreamingContext.getOrCreate(
        tempfile.mkdtemp(prefix="checkpoint-"),
        lambda: StreamingContext(sc, 1, clock=clock),
        recover=recover,
    )
    stepper = Stepper(ssc, clock)

    def step() -> None:
        stepper.step()
        wait_counted(_STEP_S)

    yield ssc, step
    ssc.stop(stopSparkContext=False)


@contextmanager
def _peer(sc: SparkContext) -> Iterator[tuple[Any, Callable[[], object]]]:
    warnings.simplefilter("ignore", FutureWarning)  # DStreams are deprecated
    from pyspark.streaming import StreamingContext

    sc._jsc.sc().conf().set("spark.streaming.clock", "org.apache.spark.util.ManualClock")
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(tempfile.mkdtemp(prefix="checkpoint-"))

    def step() -> None:
        ssc._jssc.ssc().scheduler().clock().advance(1000)
        wait_counted(_STEP_S)

    yield ssc, step
    ssc.stop(stopSparkContext=False)


_ENGINES = {
    "ours": partial(_ours, recover="graph"),
    "ours-program": partial(_ours, recover="program"),
    "peer": _peer,
}


def _batch_ms(sc: SparkContext, engine: str, operation: str, batches: int) -> float:
    steps = _WARMUP + batches
    source = sc.parallelize([(n % _KEYS, n) for n in range(_RECORDS)], _PARTITIONS)
    with _ENGINES[engine](sc) as (ssc, step):
        pairs = ssc.queueStream([source] * (steps + 1))
        OPERATIONS[operation](pairs).foreachRDD(count)
        ssc.start()
        return statistics.median([_timed_ms(step) for _ in range(steps)][_WARMUP:])


def _timed_ms(act: Callable[[], object]) -> float:
    start_s = time.perf_counter()
    act()
    return (time.perf_counter() - start_s) * 1000


def main() -> None:
    """Time all operations and print what they took."""
    engine, batches = sys.argv[1], int(sys.argv[2])
    sc = spark_context("local[2]")
    for warm in ("map", "reduceByKey"):
        _batch_ms(sc, engine, warm, batches)
    only = sys.argv[3:] or list(OPERATIONS)
    figures = {name: _batch_ms(sc, engine, name, batches) for name in only}
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
