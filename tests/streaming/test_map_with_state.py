"""mapWithState on a real Spark: its semantics against a model, failures, restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.streaming import State, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper

pytestmark = pytest.mark.spark


class Program:
    """A program over a queue of batches, which can be made again on one checkpoint location."""

    def __init__(self, sc: SparkContext, place: Path) -> None:
        self.sc = sc
        self.place = place
        self.clock = ManualClock(1_000_000)
        self.out: list[list[Any]] = []
        self.snapshots: list[dict[Any, Any]] = []
        self.ssc: StreamingContext | None = None

    def start(self, batches: list[list[Any]], spec: Any, **options: Any) -> Stepper:
        # Its outputs note what they see in this object, which is not to be pickled.
        self.ssc = StreamingContext.getOrCreate(
            str(self.place),
            lambda: StreamingContext(self.sc, 1, clock=self.clock),
            recover="program",
        )
        source = self.ssc.queueStream([self.sc.parallelize(batch, 2) for batch in batches])
        mapped = source.mapWithState(spec, **options)
        mapped.foreachRDD(lambda rdd: self.out.append(rdd.collect()))
        mapped.stateSnapshots().foreachRDD(lambda rdd: self.snapshots.append(dict(rdd.collect())))
        stepper = Stepper(self.ssc, self.clock)
        self.ssc.start()
        return stepper

    def stop(self) -> None:
        if self.ssc is not None:
            self.ssc.stop(stopSparkContext=False)


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Iterator[Program]:
    program = Program(sc, tmp_path / "checkpoint")
    yield program
    program.stop()


def running_sum(key: str, value: int | None, state: State[int]) -> Any:
    if value is None:
        return (key, "gone", state.get())
    total = value + (state.get() if state.exists() else 0)
    state.update(total)
    return (key, total)


def test_sums(program: Program) -> None:
    stepper = program.start(
        [[("a", 1), ("b", 2), ("a", 3)], [], [("b", 5)]], running_sum, timeout=3
    )
    stepper.step(8)
    assert [sorted(batch) for batch in program.out] == [
        [("a", 1), ("a", 4), ("b", 2)],
        [],
        [("b", 7)],
        [],
        [("a", "gone", 4)],
        [],
        [("b", "gone", 7)],
        [],
    ]
    assert program.snapshots[0] == {"a": 4, "b": 2}
