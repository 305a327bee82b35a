"""Both engines on manual clocks, to run the same program on each and compare."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.resultiterable import ResultIterable
from pyspark.streaming import StreamingContext as TheirContext

from penstock.streaming import StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

Outputs = dict[str, list[tuple[float, Any]]]
"""What a program's outputs saw: batch times in seconds, and records."""


def plain(record: Any) -> Any:
    """Records as they compare: groups have no order of their own."""
    if isinstance(record, ResultIterable | list):
        return sorted((plain(part) for part in record), key=repr)
    return tuple(map(plain, record)) if isinstance(record, tuple) else record


def collect(stream: Any, seen: list[tuple[float, Any]]) -> None:
    stream.foreachRDD(lambda time, rdd: seen.append((time.timestamp(), plain(rdd.collect()))))


seen: dict[str, dict[float, Any]] = {}
"""What outputs saw that ``keep`` them here, by name and batch time."""


def keep(name: str, stream: Any) -> None:
    """Have the output keep what it sees, also after it was read from a graph checkpoint."""

    def note(time: Any, rdd: Any) -> None:
        from tests.streaming import engines  # not the copy that was pickled with the function

        records = sorted(map(plain, rdd.collect()), key=repr)
        engines.seen.setdefault(name, {})[time.timestamp()] = records

    stream.foreachRDD(note)


@contextmanager
def ours(sc: SparkContext) -> Iterator[tuple[StreamingContext, Stepper]]:
    clock = ManualClock()
    ssc = StreamingContext(sc, 1, clock=clock)
    try:
        yield ssc, Stepper(ssc, clock)
    finally:
        ssc.stop(stopSparkContext=False)


@contextmanager
def theirs(sc: SparkContext, folder: Path) -> Iterator[TheirContext]:
    with spark_settings(sc, {"spark.streaming.clock": "org.apache.spark.util.ManualClock"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # it says that DStreams are deprecated
            ssc = TheirContext(sc, 1)
        with ExitStack() as stack:
            stack.callback(ssc.stop, stopSparkContext=False)
            ssc.checkpoint(str(folder))
            yield ssc


def step_theirs(ssc: TheirContext, outputs: Outputs, batches: int) -> None:
    """Run that many more batches; ``outputs["end"]`` is their last output."""
    wanted = len(outputs["end"]) + batches
    ssc._jssc.ssc().scheduler().clock().advance(batches * 1000)

    def ended() -> bool:
        ssc.awaitTerminationOrTimeout(0)  # raises what a job raised
        return len(outputs["end"]) == wanted

    assert eventually(ended)
