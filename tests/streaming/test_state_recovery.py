"""State through restarts: a run that was cut off anywhere goes on as if it never had been."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.errors import (
    CheckpointError,
    ConfigError,
    LogGapError,
    RecoveryMismatchError,
    StreamingError,
)
from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.crash_steps import CrashedError, Moment, Steps
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

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
Define = Callable[[DStream], DStream]


def keep_list(values: list[int], state: list[int] | None) -> list[int]:
    kept = [] if state is None else state
    kept.extend(values)
    return kept


def state_and_window(pairs: DStream) -> DStream:
    """Lists by key, beside sums over five batches; the keys that left the window stay in it."""
    lists = pairs.updateStateByKey(keep_list, 1, GIVEN, name="lists").checkpoint(2)
    sums = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 5, 1, 1, name="sums")
    return lists.cogroup(sums.checkpoint(3), 1)


def records(rdd: Any) -> list[Any]:
    return sorted(map(plain, rdd.collect()), key=repr)


def plain(record: Any) -> Any:
    """Return a record of a cogroup in parts that compare."""
    key, value = record
    return (key, *map(list, value)) if isinstance(value, tuple) else record


def wait_planned_and_idle(until_ms: int) -> None:
    """Wait for the batch of that time, where slide ends that were missed come before it."""
    active = StreamingContext.getActive()
    assert active is not None
    engine = active._engine
    assert engine is not None
    batches = engine._batches
    assert eventually(lambda: batches._newest_ms >= until_ms and not batches._log.unfinished_ms())


class Program(Runs):
    """State over a queue; its runs are cut off, and each batch comes out the same in all."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location, ManualClock())
        self.seen: Seen = {}

    @property
    def rerun(self) -> int:
        """How many batches were cut off."""
        return len(CheckpointLocation(self.location).recover().rerun)

    def started(self, define: Define, interval_s: int) -> AbstractContextManager[Stepper]:
        def output(time: datetime, rdd: Any) -> None:
            self.see(round(time.timestamp()), records(rdd))

        return self.running_program(
            lambda ssc: define(ssc.queueStream(BATCHES)).foreachRDD(output), interval_s
        )

    def see(self, time_s: int, output: list[Any]) -> None:
        assert self.seen.setdefault(time_s, output) == output, "a batch came out otherwise"

    def run(
        self,
        steps: Steps | None = None,
        *,
        until_s: int = len(BATCHES),
        define: Define = state_and_window,
        interval_s: int = 1,
    ) -> None:
        """Run what was cut off, and batches until a time, each to its commit."""
        steps = steps or Steps(None)
        first = self.rerun
        with steps.watched(), self.started(define, interval_s) as stepper:
            for done in count(first):
                stepper.wait_completed(done)
                steps.wait("commit", done)  # the next batch, or stop, deletes
                if self.clock.time_ms() == 1000 * until_s:
                    return wait_planned_and_idle(1000 * until_s)
                self.clock.advance(1000 * interval_s)

    def files(self) -> list[str]:
        """Return the RDD checkpoints and marks that are there."""
        rdds = self.location / "rdds"
        found = [*rdds.glob("*/rdd-*"), *rdds.glob("marks/*/[0-9]*")]
        return sorted(str(path.relative_to(rdds)) for path in found)


@pytest.fixture(autouse=True, scope="module")
def short_logs(sc: SparkContext) -> Iterator[None]:
    """Have the logs keep no more than recovery needs."""
    with spark_settings(sc, {"spark.sql.streaming.minBatchesToRetain": "1"}):
        yield


@pytest.fixture(scope="module")
def uninterrupted(sc: SparkContext, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    program = Program(sc, tmp_path_factory.mktemp("uninterrupted"))
    program.run()
    return program.seen


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
    "after-mark-1",
    "after-commit-5",  # with batches to make again for both operators
    "before-write-6",  # one operator's state of a batch is durable, the other's is not
    "after-write-6",
    "after-mark-7",
    "before-unmark-4",
    "after-unmark-4",
    "after-delete-3",
    "after-retire-5",
]


@pytest.mark.storm
@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_at_each_step(
    sc: SparkContext, tmp_path: Path, uninterrupted: Seen, moment: str
) -> None:
    program = Program(sc, tmp_path)
    steps = Steps(Moment.parse(moment))
    with pytest.raises(CrashedError):
        program.run(steps)
    assert steps.ended
    program.run()
    assert program.seen == uninterrupted
    assert len(program.files()) == 4, "one RDD checkpoint and its mark for each operator"


def test_a_failed_batch_runs_again_with_the_state_before_it(
    continuing: None, sc: SparkContext, tmp_path: Path, uninterrupted: Seen
) -> None:
    """Batches after it are committed, and newer RDD checkpoints than it needs are there."""
    failing = Program(sc, tmp_path)
    see = failing.see

    def fail_once(time_s: int, output: list[Any]) -> None:
        if time_s == 3 and 3 not in failing.seen:
            failing.see = see  # type: ignore[method-assign]
            raise RuntimeError("as ordered")
        see(time_s, output)

    failing.see = fail_once  # type: ignore[method-assign]
    with failing.started(state_and_window, 1) as stepper:
        for done in range(1, 7):
            failing.clock.advance(1000)
            assert eventually(lambda: len(stepper.completed) == done)  # noqa: B023
    assert sorted(failing.seen) == [1, 2, 4, 5, 6]
    assert failing.rerun == 1
    failing.run()
    assert failing.seen == uninterrupted


def totals(partitions: int, given: list[Any], name: str = "totals") -> Define:
    def define(pairs: DStream) -> DStream:
        return pairs.updateStateByKey(
            lambda values, state: sum(values) + (state or 0), partitions, given, name
        )

    return define


def test_state_goes_on_in_a_program_that_changed(sc: SparkContext, tmp_path: Path) -> None:
    """Other partitions, another batch interval and another initialRDD; and after a pause.

    All batches since the state began are made again, because no RDD checkpoint was due.
    """
    program = Program(sc, tmp_path)
    program.run(until_s=4, define=totals(2, [("a", 100)]))
    program.clock.advance(1000_000)
    changed = totals(3, [("z", 1)])
    program.run(until_s=1008, define=changed, interval_s=2)
    assert program.seen[1008] == [("a", 107), ("b", 4), ("late", 5), ("left", 1), (None, 5)]


def test_a_new_operator_begins_with_the_batches_that_come(sc: SparkContext, tmp_path: Path) -> None:
    def both(pairs: DStream) -> DStream:
        old = totals(1, [])(pairs).map(lambda pair: (("old", pair[0]), pair[1]))
        return old.union(totals(1, [], name="other")(pairs))

    program = Program(sc, tmp_path)
    program.run(until_s=3, define=totals(1, []))
    program.run(until_s=4, define=both)
    old = [(("old", "a"), 3), (("old", "b"), 3), (("old", "left"), 1), (("old", None), 5)]
    assert program.seen[4] == sorted([*old, ("b", 3)], key=repr)
    program.run(until_s=5, define=both)
    assert {("a", 4), (("old", "a"), 7)} <= set(program.seen[5])


def test_windows_after_a_pause(sc: SparkContext, tmp_path: Path) -> None:
    """While no program ran no batches came, and all that was in the window leaves it."""
    program = Program(sc, tmp_path)
    program.run(until_s=4)
    program.clock.advance(100_000)
    program.run(until_s=105)
    assert program.seen[105] == [
        ("a", [[1, 2, 4]], [4]),
        ("b", [[3]], [0]),
        ("given", [[0]], []),
        ("left", [[1]], [0]),
        (None, [[5]], [0]),
    ]


def test_lost_partitions_are_named(sc: SparkContext, tmp_path: Path) -> None:
    program = Program(sc, tmp_path)
    program.run(until_s=4)
    for part in program.location.glob("rdds/*/rdd-*/part-*"):
        part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=r"bytes, and had .*=restore RDD checkpoint"):
        program.run(until_s=5)


def test_batches_that_state_needs_and_that_are_gone_are_named(
    sc: SparkContext, tmp_path: Path
) -> None:
    program = Program(sc, tmp_path)
    program.run(until_s=5, define=totals(1, []))
    (tmp_path / "offsets" / "0").unlink()
    (tmp_path / "commits" / "0").unlink()
    with pytest.raises(LogGapError, match="state was kept at 1970-01-01T00:00:00"):
        program.run(until_s=6, define=totals(1, []))


def test_an_initial_rdd_is_not_in_a_graph_checkpoint(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1)
    given = sc.parallelize([("a", 1)])
    stream = ssc.queueStream([]).updateStateByKey(keep_list, 1, given)
    listed = ssc.queueStream([]).updateStateByKey(keep_list, 1, [("a", 1)])
    try:
        assert stream.initial_rdd().collect() == [("a", 1)]
        copies = [pickle.loads(pickle.dumps(each)) for each in (stream, listed)]
        for copy in copies:
            copy.attach(ssc)
        with pytest.raises(RecoveryMismatchError, match="initialRDD"):
            copies[0].initial_rdd()
        assert copies[1].initial_rdd().collect() == [("a", 1)]
    finally:
        ssc.stop(stopSparkContext=False)


def test_a_setting_by_which_spark_would_delete_state(sc: SparkContext, tmp_path: Path) -> None:
    setting = "spark.cleaner.referenceTracking.cleanCheckpoints"
    with spark_settings(sc, {setting: "true"}), pytest.raises(ConfigError, match=setting):
        Program(sc, tmp_path).run()


def test_wrong_arguments(sc: SparkContext) -> None:
    ssc = StreamingContext(sc, 1)
    try:
        with pytest.raises(ConfigError, match="not a function"):
            ssc.queueStream([]).updateStateByKey(None)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="name"):
            ssc.queueStream([]).updateStateByKey(keep_list, name="a/b")
        ssc.queueStream([]).updateStateByKey(keep_list, name="same")
        with pytest.raises(StreamingError, match="two operators"):
            ssc.queueStream([]).countByWindow(5, 1, name="same")
    finally:
        ssc.stop(stopSparkContext=False)
