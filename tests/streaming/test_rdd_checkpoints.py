"""RDD checkpoints of streams without state: what is written, used again, and deleted, and when."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.errors import StorageError
from penstock.storage import open_storage
from penstock.streaming import ConstantInputDStream, DStream, StreamingContext
from penstock.streaming.core.rdd_checkpoints import RddCheckpoints
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.faults.driver import Driver
from tests.waiting import eventually

pytestmark = pytest.mark.spark

PROGRAM = Path(__file__).with_name("constant_program.py")


def written(location: Path) -> list[str]:
    """Return the RDD checkpoints in a location."""
    return sorted(str(path.relative_to(location)) for path in location.glob("rdds/*/rdd-*"))


def marks(location: Path) -> list[int]:
    return sorted(int(path.name) for path in location.glob("rdds/marks/*/[0-9]*"))


def constant(ssc: StreamingContext, fixed: RDD[int]) -> DStream:
    return ConstantInputDStream(ssc, fixed)


def queue_default(ssc: StreamingContext, fixed: RDD[int]) -> DStream:
    return ssc.queueStream([], default=fixed)


def transform(ssc: StreamingContext, fixed: RDD[int]) -> DStream:
    return ssc.queueStream([]).transform(lambda rdd: fixed)


def alternating(ssc: StreamingContext, fixed: RDD[int]) -> DStream:
    """The same RDD now and then: its files must not go in between."""
    other = ssc.sparkContext.parallelize([0])
    return ssc.queueStream([]).transform(
        lambda time, rdd: fixed if int(time.timestamp()) % 6 < 2 else other
    )


@pytest.mark.parametrize("define", [constant, queue_default, transform, alternating])
def test_an_rdd_that_a_program_holds_outlives_its_checkpoints(
    sc: SparkContext,
    ssc: StreamingContext,
    clock: ManualClock,
    tmp_path: Path,
    define: Callable[[StreamingContext, RDD[int]], DStream],
) -> None:
    fixed = sc.parallelize([1, 2, 3])
    ssc._recover = "program"
    ssc.checkpoint(str(tmp_path))
    seen: list[list[int]] = []
    define(ssc, fixed).checkpoint(1).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(10)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert len(seen) == 10
    assert set(map(tuple, seen)) <= {(1, 2, 3), (0,)}
    assert not fixed.isCheckpointed()
    assert 1 <= len(written(tmp_path)) <= 4


def test_files_stay_for_state_that_is_made_of_them(
    ssc: StreamingContext, clock: ManualClock, tmp_path: Path
) -> None:
    """A lost cache has state computed again since its own checkpoint, 10 s ago."""
    ssc._recover = "program"
    ssc.checkpoint(str(tmp_path))
    pairs = ssc.queueStream([[("a", 1)]] * 9).map(lambda pair: pair).checkpoint(1)
    seen: list[Any] = []

    def lose_cache(rdd: RDD[Any]) -> None:
        for cached in rdd.context._jsc.getPersistentRDDs().values():
            cached.unpersist(True)
        seen.append(rdd.collect())

    sums = pairs.updateStateByKey(lambda new, old: sum(new) + (old or 0), 1)
    sums.checkpoint(10).foreachRDD(lose_cache)
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(9)
    assert seen == [[("a", n)] for n in range(1, 10)]


def test_a_restart_reads_what_was_written(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Spark: a window sees an earlier batch as it was computed then."""
    caplog.set_level(logging.INFO, "penstock.streaming.core.checkpoint_data")
    location, answer, out = tmp_path / "location", tmp_path / "answer", tmp_path / "out"
    answer.write_text("then")

    def create() -> StreamingContext:
        ssc = StreamingContext(sc, 1, clock=ManualClock(1_000_000))
        said = ConstantInputDStream(ssc, sc.parallelize([1], 1)).map(lambda _: answer.read_text())

        def note(rdd: RDD[str]) -> None:
            with out.open("a") as file:
                file.write(" ".join(rdd.collect()) + "\n")

        said.checkpoint(1).window(3, 1).foreachRDD(note)
        return ssc

    def run(ssc: StreamingContext, clock: ManualClock, batches: int) -> None:
        stepper = Stepper(ssc, clock)
        ssc.start()
        stepper.step(batches)
        ssc.stop(stopSparkContext=False)

    first = StreamingContext.getOrCreate(str(location), create)
    assert isinstance(first.clock, ManualClock)
    run(first, first.clock, 3)
    answer.write_text("now")
    again = StreamingContext.getOrCreate(str(location), create)
    clock = again._clock = ManualClock(1_003_000)
    run(again, clock, 3)
    lines = out.read_text().splitlines()
    assert lines[2] == "then then then"
    assert lines[3:] == ["then then now", "then now now", "now now now"]
    assert "Restoring checkpointed RDD for time 1003000 ms from file" in caplog.text
    assert eventually(lambda: min(m for m in marks(location) if m) > 1_000_000)


def test_a_damaged_one_is_computed_again(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def create() -> StreamingContext:
        ssc = StreamingContext(sc, 1, clock=ManualClock(1_000_000))
        ConstantInputDStream(ssc, sc.parallelize([1], 1)).map(str).checkpoint(1).foreachRDD(
            lambda rdd: rdd.count()
        )
        return ssc

    ssc = StreamingContext.getOrCreate(str(tmp_path), create)
    assert isinstance(ssc.clock, ManualClock)
    stepper = Stepper(ssc, ssc.clock)
    ssc.start()
    stepper.step(2)
    ssc.stop(stopSparkContext=False)
    for mark in tmp_path.glob("rdds/marks/*/1*"):
        mark.write_text("v1\n")
    again = StreamingContext.getOrCreate(str(tmp_path), create)
    clock = again._clock = ManualClock(1_002_000)
    stepper = Stepper(again, clock)
    again.start()
    stepper.step(2)
    again.stop(stopSparkContext=False)
    assert "is not used: its RDD is computed again" in caplog.text


@pytest.mark.storm
@pytest.mark.slow
def test_a_constant_comes_back_after_a_kill(tmp_path: Path) -> None:
    """The program of Spark's book, with checkpoints: a hundred batches, kill -9, and again."""
    location, errors = tmp_path / "location", tmp_path / "errors"
    files: list[list[str]] = []
    for said, batches in (("created", 100), ("recovered", 3)):
        with Driver(PROGRAM, [str(location)], errors, own_pythons=True) as driver:
            driver.wait_line(said)
            driver.wait_line(f"batch {batches} [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]")
            driver.kill()
        files.append(sorted(map(str, location.glob("rdds/*/rdd-*/part-*"))))
    assert files[0] == files[1]
    assert len(files[0]) == 2


# -- two drivers --


def test_a_second_driver_deletes_nothing_before_it_has_planned(
    sc: SparkContext, tmp_path: Path
) -> None:
    storage = open_storage(tmp_path)
    first = RddCheckpoints(sc, storage, 5000)
    rdd = sc.parallelize([1, 2], 2).map(str)
    rdd.checkpoint()
    first.write(rdd, "checkpoint", {})
    second = RddCheckpoints(sc, storage, 5000)
    second.sweep(5000, lambda name: False)  # a batch of before, which it ran again
    assert not second.may_delete
    assert rdd.collect() == ["1", "2"]
    third = RddCheckpoints(sc, storage, 5000)
    later = sc.parallelize([3], 1).map(str)
    later.checkpoint()
    third.write(later, "checkpoint", {})
    second.sweep(6000, lambda name: False)
    assert second.may_delete
    assert written(tmp_path) == [f"rdds/{third._run}/{Path(later.getCheckpointFile() or '').name}"]


def test_a_sweep_that_fails_is_tried_again(
    sc: SparkContext,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "rdds" / "dead"
    (folder / "rdd-1").mkdir(parents=True)
    run = RddCheckpoints(sc, open_storage(tmp_path))

    def fail(self: RddCheckpoints, file: str) -> None:
        raise StorageError("as ordered", operation="delete")

    with monkeypatch.context() as broken:
        broken.setattr(RddCheckpoints, "delete", fail)
        run.sweep(1000, lambda name: False)
    assert folder.exists()
    assert "Error deleting RDD checkpoints of earlier runs" in caplog.text
    run.sweep(2000, lambda name: False)
    assert not folder.exists()


def test_a_deletion_that_fails_does_not_end_the_program(
    ssc: StreamingContext,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ssc._recover = "program"
    ssc.checkpoint(str(tmp_path))
    failures = iter(range(3))
    delete = RddCheckpoints.delete

    def fail(self: RddCheckpoints, file: str) -> None:
        if next(failures, None) is not None:
            raise StorageError("as ordered", operation="delete")
        delete(self, file)

    monkeypatch.setattr(RddCheckpoints, "delete", fail)
    pairs = ssc.queueStream([[("a", n)] for n in range(12)])
    pairs.map(lambda pair: pair).checkpoint(1).foreachRDD(lambda rdd: rdd.count())
    sums = pairs.reduceByKeyAndWindow(operator.add, operator.sub, 2, 1, 1)
    sums.checkpoint(1).foreachRDD(lambda rdd: rdd.count())
    stepper = Stepper(ssc, clock)
    ssc.start()
    assert not any(info.failed for info in stepper.step(12))
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert caplog.text.count("Error deleting old checkpoint file") == 3
    assert len(written(tmp_path)) <= 5
