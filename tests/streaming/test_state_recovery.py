"""State through restarts: a run that was cut off anywhere goes on as if it never had been."""

from __future__ import annotations

import operator
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.crash_steps import CrashedError, Moment, Steps

pytestmark = pytest.mark.spark

BATCHES = [
    [("left", 1), ("a", 1)],
    [("a", 2), (None, 5)],
    [],
    [("b", 3)],
    [("a", 4)],
    [("late", 5), ("b", 1)],
    [("a", 6)],
    [],
]
GIVEN = [("given", [0])]
Seen = dict[int, list[Any]]


def keep_list(values: list[int], state: list[int] | None) -> list[int]:
    kept = [] if state is None else state
    kept.extend(values)
    return kept


def state_and_window(pairs: DStream) -> DStream:
    """Lists by key, beside sums over five batches; the keys that left the window stay in it."""
    lists = pairs.updateStateByKey(keep_list, 1, GIVEN, name="lists").checkpoint(2)
    sums = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1, 1, name="sums")
    return lists.cogroup(sums.checkpoint(2), 1)


def records(rdd: Any) -> list[Any]:
    pairs = ((key, list(left), list(right)) for key, (left, right) in rdd.collect())
    return sorted(pairs, key=repr)


class Site:
    """A checkpoint location, the programs that run on it one after the other, and their outputs."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        self.sc = sc
        self.location = location
        self.clock = ManualClock()
        self.seen: Seen = {}

    @property
    def rerun(self) -> int:
        """How many batches were cut off."""
        return len(CheckpointLocation(self.location).uncommitted())

    @contextmanager
    def started(self) -> Iterator[Stepper]:
        ssc = StreamingContext(self.sc, 1, clock=self.clock)
        ssc.checkpoint(str(self.location))
        state_and_window(ssc.queueStream(BATCHES)).foreachRDD(
            lambda time, rdd: self.see(round(time.timestamp()), records(rdd))
        )
        stepper = Stepper(ssc, self.clock)
        try:
            ssc.start()
            yield stepper
        finally:
            ssc.stop(stopSparkContext=False)

    def see(self, time_s: int, output: list[Any]) -> None:
        assert self.seen.setdefault(time_s, output) == output, "a batch came out otherwise"

    def run(self, steps: Steps) -> None:
        """Run what was cut off and all batches, each to the end of what it deletes."""
        first = self.rerun
        with steps.watched(), self.started() as stepper:
            for done in count(first):
                stepper.wait_completed(done)
                steps.wait("retire", done)
                if self.clock.time_ms() == 1000 * len(BATCHES):
                    return
                self.clock.advance(1000)

    def files(self) -> list[str]:
        """Return the RDD checkpoints and marks that are there."""
        rdds = self.location / "rdds"
        found = [*rdds.glob("*/rdd-*"), *rdds.glob("marks/*/[0-9]*")]
        return sorted(str(path.relative_to(rdds)) for path in found)


@pytest.fixture(autouse=True, scope="module")
def short_logs(sc: SparkContext) -> Iterator[None]:
    """Have the logs keep no more than recovery needs."""
    conf = sc._jsc.sc().conf()
    conf.set("spark.sql.streaming.minBatchesToRetain", "1")
    yield
    conf.remove("spark.sql.streaming.minBatchesToRetain")


@pytest.fixture(scope="module")
def uninterrupted(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    site = Site(sc, tmp_path_factory.mktemp("uninterrupted"))
    site.run(Steps(None))
    return site.seen


def test_keys_that_left_a_window_stay(uninterrupted: Seen) -> None:
    assert uninterrupted[5] == [
        ("a", [[1, 2, 4]], [7]),
        ("b", [[3]], [3]),
        ("given", [[0]], []),
        ("left", [[1]], [1]),
        (None, [[5]], [5]),
    ]
    assert ("left", [[1]], [0]) in uninterrupted[8]


# After a step is before the next one, where the two always follow each other.
MOMENTS = [
    "before-write-1",  # the state to begin with
    "after-write-1",
    "after-mark-1",
    "before-write-5",
    "after-write-5",
    "after-mark-6",
    "after-commit-4",
    "before-unmark-3",
    "after-unmark-3",
    "after-delete-2",
    "after-retire-5",
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_at_each_step(
    sc: SparkContext, tmp_path: Path, uninterrupted: Seen, moment: str
) -> None:
    site = Site(sc, tmp_path)
    steps = Steps(Moment.parse(moment))
    with pytest.raises(CrashedError):
        site.run(steps)
    assert steps.ended
    site.run(Steps(None))
    assert site.seen == uninterrupted
    assert len(site.files()) == 4, "one RDD checkpoint and its mark for each operator"
