"""What a failed batch, and a job that does not end, mean for what may run beside or after it."""

from __future__ import annotations

import threading
import time
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext
from pyspark.sql import SparkSession

from penstock.checkpoint import CheckpointLocation
from penstock.errors import BatchFailedError, ConcurrentDriverError, ConfigError
from penstock.streaming import StreamingContext, StreamingListener
from penstock.streaming.engine.job_scheduler import JobScheduler
from penstock.streaming.operations.outputs import ForEachBatch
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.settings import spark_settings
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


def lines(ssc: StreamingContext, root: Path) -> Any:
    """Return a stream of the lines of a file, with columns; its program keeps a location."""
    ssc._recover = "program"
    ssc.checkpoint(str(root / "location"))
    (root / "app.log").touch()
    return ssc.tailStream(str(root / "app.log"))


def is_free(root: Path) -> bool:
    """Whether another driver may begin."""
    try:
        with CheckpointLocation(root / "location"):
            return True
    except ConcurrentDriverError:
        return False


def test_the_location_stays_locked_until_a_job_that_ignores_cancelling_ends(
    ssc: StreamingContext,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    running, may_end = threading.Event(), threading.Event()

    def write(df: Any, batch_id: int) -> None:
        running.set()
        may_end.wait(WAIT_S)

    lines(ssc, tmp_path).foreachBatch(write)
    ssc.start()
    clock.advance(1000)
    assert running.wait(WAIT_S)
    monkeypatch.setattr(
        JobScheduler, "stop", partialmethod(JobScheduler.stop, cancel_timeout_s=0.2)
    )
    try:
        ssc.stop(stopSparkContext=False)
        assert StreamingContext.getActive() is None
        assert "1 job(s) did not end when they were cancelled" in caplog.text
        assert not is_free(tmp_path)
    finally:
        may_end.set()
    assert eventually(lambda: is_free(tmp_path))


def test_a_job_is_cancelled_also_in_a_group_of_the_program_s_own(
    ssc: StreamingContext, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reached = tmp_path / "reached"

    def write(df: Any, batch_id: int) -> None:
        ssc.sparkContext.setJobGroup("etl", f"load {batch_id}")
        ssc.sparkContext.parallelize([str(reached)], 1).foreach(_hang)

    lines(ssc, tmp_path).foreachBatch(write)
    ssc.start()
    clock.advance(1000)
    assert eventually(reached.exists)
    ssc.stop(stopSparkContext=False)
    assert "did not end when they were cancelled" not in caplog.text
    assert is_free(tmp_path)


def _hang(path: str) -> None:
    Path(path).touch()
    time.sleep(WAIT_S)


@pytest.mark.parametrize(
    ("name", "value"),
    [("spark.penstock.onBatchFailure", "continue"), ("spark.streaming.concurrentJobs", "2")],
)
def test_an_exactly_once_output_refuses_that_later_batches_overtake_a_failed_one(
    sc: SparkContext,
    clock: ManualClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
) -> None:
    with spark_settings(sc, {name: value}):
        ssc = StreamingContext(sc, 1, clock=clock)
        lines(ssc, tmp_path).foreachBatch(lambda df, batch_id: None)
        monkeypatch.setattr(ForEachBatch, "exactly_once", True)
        with pytest.raises(
            ConfigError, match=f"'foreachBatch-0' writes each batch exactly.*{name}"
        ):
            ssc.start()
    assert StreamingContext.getActive() is None
    assert not any((tmp_path / "location").iterdir())


def refuse(value: Any) -> Any:
    raise ValueError("no such page\nsecond line")


def in_a_task(rdd: RDD[Any]) -> None:
    rdd.map(refuse).count()


def in_sql(rdd: RDD[Any]) -> None:
    SparkSession(rdd.ctx).range(1).mapInArrow(refuse, "id long").collect()


def in_java(rdd: RDD[Any]) -> None:
    rdd.ctx._jvm.java.lang.Integer.parseInt("seven")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("output", "raised", "line"),
    [
        (refuse, "ValueError: no such page", refuse),
        (in_a_task, "ValueError: no such page", refuse),
        (in_sql, "ValueError: no such page", refuse),
        (in_java, 'NumberFormatException: For input string: "seven"', in_java),
    ],
)
def test_what_a_function_raised_is_told_on_one_line_with_its_place(
    ssc: StreamingContext, clock: ManualClock, output: Any, raised: str, line: Any
) -> None:
    ssc.queueStream([[1]]).foreachRDD(output)
    stepper = Stepper(ssc, clock)
    ssc.start()
    with pytest.raises(BatchFailedError) as failure:
        stepper.step()
    said = str(failure.value)
    assert "\n" not in said
    assert len(said) < 700
    place = f"{__file__}:{line.__code__.co_firstlineno + 1}"
    assert f"{raised}, at {place}. Hint: " in said
    assert said.startswith("job foreachRDD 0 of batch 0 (1970-01-01T00:16:41.000Z), foreachRDD at ")
    assert "second line" in str(failure.value.cause) or output is in_java  # all of it


def test_a_batch_that_runs_again_says_so(
    sc: SparkContext, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def program(fails: bool) -> Stepper:
        def write(df: Any, batch_id: int) -> None:
            if fails:
                raise OSError("sink is down")

        ssc = StreamingContext(sc, 1, clock=clock)
        lines(ssc, tmp_path).foreachBatch(write)
        stepper = Stepper(ssc, clock)
        ssc.start()
        return stepper

    with pytest.raises(BatchFailedError, match="sink is down"):
        program(fails=True).step()
    assert "runs again: it was planned" not in caplog.text
    program(fails=False).wait_completed(1)
    assert "Batch 0 (1970-01-01T00:16:41.000Z) runs again: it was planned" in caplog.text
    assert "there is no commits/0" in caplog.text


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def exits(rdd: RDD[Any]) -> Any:
    raise SystemExit("bad configuration")


def unprintable(rdd: RDD[Any]) -> Any:
    raise UnprintableError


@pytest.mark.parametrize("function", [exits, unprintable])
@pytest.mark.parametrize("on_planning", [True, False])
def test_whatever_a_function_raises_ends_the_program_with_an_error(
    ssc: StreamingContext, clock: ManualClock, function: Any, on_planning: bool
) -> None:
    stream = ssc.queueStream([[1], [2]])
    stream = stream.transform(function) if on_planning else stream
    stream.foreachRDD(function if not on_planning else RDD.count)
    stepper = Stepper(ssc, clock)
    ssc.start()
    with pytest.raises(
        BatchFailedError, match=r"bad configuration|an? UnprintableError was raised"
    ):
        stepper.step()


def in_transform(ssc: StreamingContext) -> None:
    ssc.queueStream([[1]]).transform(refuse).foreachRDD(RDD.count)


def in_output(ssc: StreamingContext) -> None:
    source = ssc.queueStream([[1]])
    for _ in range(3):
        source.foreachRDD(refuse)


@pytest.mark.parametrize("program", [in_transform, in_output])
def test_the_log_says_that_the_program_stops_and_why(
    ssc: StreamingContext, clock: ManualClock, program: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Also of a program that does not call awaitTermination."""
    program(ssc)
    ssc.start()
    clock.advance(1000)
    assert eventually(lambda: StreamingContext.getActive() is None)
    errors = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    (said,) = (text for text in errors if text.startswith("The program stops"))
    assert "no such page" in said
    assert "\n" not in said
    assert said.endswith("set spark.penstock.onBatchFailure=continue")


@pytest.mark.usefixtures("continuing")
def test_a_program_that_goes_on_does_not_say_that_it_stops(
    ssc: StreamingContext, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    in_output(ssc)
    ssc.start()
    clock.advance(1000)
    assert eventually(lambda: "no such page" in caplog.text)
    clock.advance(1000)
    ssc.stop(stopSparkContext=False)
    assert "The program stops" not in caplog.text


class ExitingListener(StreamingListener):
    def onBatchStarted(self, batchStarted: Any) -> None:
        raise SystemExit(1)


def test_a_listener_that_exits_ends_nothing(ssc: StreamingContext, clock: ManualClock) -> None:
    ssc.addStreamingListener(ExitingListener())
    ssc.queueStream([[1], [2]]).foreachRDD(lambda rdd: None)
    stepper = Stepper(ssc, clock)
    ssc.start()
    assert len(stepper.step(2)) == 2
