"""The life of a StreamingContext, and what is refused at which moment."""

from __future__ import annotations

import json
import re
import tempfile
import threading
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark import RDD, SparkContext

from penstock.clock import iso_time
from penstock.errors import (
    BatchFailedError,
    ConcurrentDriverError,
    ConfigError,
    KafkaError,
    RecoveryMismatchError,
    StreamingError,
)
from penstock.streaming import ConstantInputDStream, DStream, StreamingContext
from penstock.streaming.engine.job_scheduler import JobScheduler
from penstock.streaming.inputs.queue_input import QueueInputDStream
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.waiting import WAIT_S, eventually

pytestmark = pytest.mark.spark


def ignore(rdd: Any) -> None:
    """An output that does nothing."""


@pytest.mark.parametrize("seconds", [None, 0, -1, float("nan"), "1", 0.0001])
def test_wrong_batch_duration(sc: SparkContext, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="batch duration"):
        StreamingContext(sc, seconds)


def test_nothing_to_execute_can_still_be_fixed(ssc: StreamingContext) -> None:
    source = ssc.queueStream([[1]])
    with pytest.raises(StreamingError, match="No output operations registered"):
        ssc.start()
    source.foreachRDD(ignore)
    ssc.start()


def test_start_twice(ssc: StreamingContext) -> None:
    ssc.queueStream([[1]]).foreachRDD(ignore)
    ssc.start()
    with pytest.raises(StreamingError, match="active and cannot be started"):
        ssc.start()
    assert StreamingContext.getActive() is ssc


def test_start_after_stop(ssc: StreamingContext) -> None:
    ssc.queueStream([[1]]).foreachRDD(ignore)
    ssc.stop(stopSparkContext=False)
    with pytest.raises(StreamingError, match="stopped and cannot be started"):
        ssc.start()


def test_stop_twice_and_before_start(ssc: StreamingContext) -> None:
    ssc.stop(stopSparkContext=False)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert ssc.awaitTerminationOrTimeout(0) is True


def test_graceful_stop_does_what_is_planned_while_it_looks(
    ssc: StreamingContext, clock: ManualClock
) -> None:
    seen: list[int] = []
    looked, wait_idle = threading.Event(), JobScheduler.wait_idle

    def look(scheduler: JobScheduler, timeout_s: float) -> bool:
        idle = wait_idle(scheduler, timeout_s)
        looked.set()
        return idle

    def plan(rdd: RDD[int]) -> RDD[int]:
        # So it finds nothing that runs, and three batches are not yet submitted.
        looked.wait(WAIT_S)
        return rdd

    source = ssc.queueStream([[1], [2], [3]]).transform(plan)
    source.foreachRDD(lambda rdd: seen.extend(rdd.collect()))
    ssc.start()
    clock.advance(3000)
    with mock.patch.object(JobScheduler, "wait_idle", look):
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert seen == [1, 2, 3]


def test_second_active_context(ssc: StreamingContext, sc: SparkContext) -> None:
    ssc.queueStream([[1]]).foreachRDD(ignore)
    ssc.start()
    other = StreamingContext(sc, 1)
    other.queueStream([[1]]).foreachRDD(ignore)
    with pytest.raises(StreamingError, match="only one StreamingContext"):
        other.start()
    ssc.stop(stopSparkContext=False)
    assert StreamingContext.getActive() is None
    other.start()
    other.stop(stopSparkContext=False)


def test_changes_after_start(ssc: StreamingContext, tmp_path: Path) -> None:
    source = ssc.queueStream([[1]])
    source.foreachRDD(ignore)
    ssc.start()
    with pytest.raises(StreamingError, match="cannot add a stream"):
        source.map(str)
    with pytest.raises(StreamingError, match="cannot add an output operation"):
        source.foreachRDD(ignore)
    with pytest.raises(StreamingError, match="cannot set the checkpoint location"):
        ssc.checkpoint(str(tmp_path))


def test_await_termination_raises_what_a_job_raised(
    ssc: StreamingContext, clock: ManualClock
) -> None:
    def fail(rdd: Any) -> None:
        raise KeyError("user's bug")

    ssc.queueStream([[1]]).foreachRDD(fail)
    ssc.start()
    clock.advance(1000)
    with pytest.raises(BatchFailedError, match="foreachRDD 0 of batch 0") as caught:
        ssc.awaitTermination(WAIT_S)
    assert isinstance(caught.value.cause, KeyError)


@pytest.mark.parametrize("policy", ["stop", "continue"])
def test_a_failed_batch_stops_the_program_or_not_and_runs_again_after_a_restart(
    sc: SparkContext,
    clock: ManualClock,
    tmp_path: Path,
    policy: str,
    request: pytest.FixtureRequest,
) -> None:
    if policy == "continue":
        request.getfixturevalue("continuing")
    seen: list[tuple[int, int]] = []
    broken = True

    def program() -> StreamingContext:
        ssc = StreamingContext(sc, 1, clock=clock)
        ssc.checkpoint(str(tmp_path))
        log = tmp_path / "app.log"
        log.touch()
        lines = ssc.tailStream(str(log))

        def process(df: Any, batch_id: int) -> None:
            if broken and batch_id == 1:
                raise OSError("sink is down")
            seen.append((batch_id, df.count()))

        lines.foreachBatch(process)
        return ssc

    ssc = program()
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step()
    with pytest.raises(BatchFailedError, match="of batch 1 "):
        stepper.step()
    clock.advance(1000)
    if policy == "continue":
        assert eventually(lambda: len(stepper.completed) == 3)
        ssc.stop(stopSparkContext=False)
    else:
        assert StreamingContext.getActive() is None  # receivers and planning ended before it raised
    assert [batch_id for batch_id, _ in seen] == ([0, 2] if policy == "continue" else [0])

    broken = False
    again = program()
    rerun = Stepper(again, clock)
    again.start()
    rerun.wait_completed(1)
    rerun.step(2)
    again.stop(stopSparkContext=False)
    next_id = 3 if policy == "continue" else 2
    assert [info.batch_id for info in rerun.completed] == [1, next_id, next_id + 1]
    # What comes after a batch that ran again is retired, too: all but the newest batch's.
    consumer = tmp_path / "journal" / "tail-0" / "consumers" / "streaming.json"
    newest = (tmp_path / "offsets" / str(next_id)).read_text().splitlines()[-1]
    assert json.loads(consumer.read_text())["offsets"] == json.loads(newest)["tail-0"]


def test_ticks_that_come_while_a_batch_runs_are_merged_into_one(
    ssc: StreamingContext, clock: ManualClock
) -> None:
    running, go_on = threading.Event(), threading.Event()
    times: list[datetime] = []

    def hold(time: datetime, rdd: Any) -> None:
        times.append(time)
        running.set()
        assert go_on.wait(WAIT_S)

    source = ssc.queueStream([[1], [2]], oneAtATime=False)
    assert isinstance(source, QueueInputDStream)
    source.merges_ticks = True
    source.foreachRDD(hold)
    stepper = Stepper(ssc, clock)
    ssc.start()
    clock.advance(1000)
    assert running.wait(WAIT_S)
    for _ in range(5):
        clock.advance(1000)
    assert eventually(lambda: ssc._engine._generator._due.unknown_before_ms == 1_006_000)  # type: ignore[union-attr]
    go_on.set()
    stepper.wait_completed(2)
    assert [info.batch_time_ms for info in stepper.completed] == [1_001_000, 1_006_000]
    assert [info.batch_id for info in stepper.completed] == [0, 1]


class LateProgram:
    """Lets all ticks but the first pass while the first batch runs. In files: it is pickled."""

    def __init__(self, folder: Path) -> None:
        self._runs, self._goes_on = folder / "runs", folder / "goes-on"

    def hold(self, rdd: RDD[Any]) -> None:
        self._runs.touch()
        assert eventually(self._goes_on.exists)

    def run(
        self, ssc: StreamingContext, clock: ManualClock, source: DStream, ticks: int
    ) -> Stepper:
        source.foreachRDD(self.hold)
        stepper = Stepper(ssc, clock)
        ssc.start()
        clock.advance(1000)
        assert eventually(self._runs.exists)
        clock.advance(1000 * (ticks - 1))
        self._goes_on.touch()
        stepper.wait_completed(ticks)
        return stepper


def test_each_late_tick_of_a_queue_has_a_batch(
    ssc: StreamingContext, clock: ManualClock, tmp_path: Path
) -> None:
    """Spark's own test_count_by_window and test_count_by_value_and_window, on a slow machine."""
    sizes: list[list[int]] = []
    values: list[list[tuple[int, int]]] = []
    source = ssc.queueStream([range(n) for n in range(1, 6)])
    source.countByWindow(3, 1).foreachRDD(lambda rdd: sizes.append(rdd.collect()))
    by_value = source.countByValueAndWindow(5, 1)
    by_value.foreachRDD(lambda rdd: values.append(sorted(rdd.collect())))
    ssc.checkpoint(str(tmp_path / "checkpoint"))
    stepper = LateProgram(tmp_path).run(ssc, clock, source, 7)
    assert sizes == [[1], [3], [6], [9], [12], [9], [5]]
    assert values[:3] == [[(0, 1)], [(0, 2), (1, 1)], [(0, 3), (1, 2), (2, 1)]]
    assert values[4] == [(0, 5), (1, 4), (2, 3), (3, 2), (4, 1)]
    times_ms = [info.batch_time_ms for info in stepper.completed]
    assert times_ms == list(range(1_001_000, 1_008_000, 1000))


def test_each_late_tick_of_a_constant_has_a_batch(
    ssc: StreamingContext, clock: ManualClock, tmp_path: Path
) -> None:
    """Beside an input whose ticks may be merged, which gives all that it has to the first."""
    seen: list[list[int]] = []
    constant = ConstantInputDStream(ssc, ssc.sparkContext.parallelize([1], 1))
    merging = ssc.queueStream([[8], [9]], oneAtATime=False)
    assert isinstance(merging, QueueInputDStream)
    merging.merges_ticks = True
    both = constant.window(3).union(merging)
    both.foreachRDD(lambda rdd: seen.append(sorted(rdd.collect())))
    LateProgram(tmp_path).run(ssc, clock, constant, 4)
    assert seen == [[1, 8, 9], [1, 1], [1, 1, 1], [1, 1, 1]]


def test_a_transform_that_raises_fails_its_batch_only(
    continuing: None, ssc: StreamingContext, clock: ManualClock
) -> None:
    seen: list[list[int]] = []

    def fragile(time: datetime, rdd: RDD[int]) -> RDD[int]:
        if time.timestamp() == 1_002:
            raise KeyError("user's bug")
        return rdd

    source = ssc.queueStream([[1], [2], [3]])
    source.transform(fragile).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step()
    with pytest.raises(BatchFailedError, match=r"batch 1 .* cannot be created") as caught:
        stepper.step()
    assert isinstance(caught.value.cause, KeyError)
    clock.advance(1000)
    assert eventually(lambda: seen == [[1], [3]])


def test_no_output_without_columns(ssc: StreamingContext) -> None:
    with pytest.raises(ConfigError, match="has no columns"):
        ssc.queueStream([[1]]).foreachBatch(lambda df, batch_id: None)


@pytest.mark.parametrize("func", [None, 7])
def test_output_that_is_no_function(ssc: StreamingContext, func: Any) -> None:
    with pytest.raises(ConfigError, match="is not a function"):
        ssc.queueStream([[1]]).foreachRDD(func)


def test_functions_that_cannot_take_what_they_are_given(ssc: StreamingContext) -> None:
    stream = ssc.queueStream([[("a", 1)]])
    with pytest.raises(ConfigError, match=r"cannot be called as f\(rdd\), f\(time, rdd\) or"):
        stream.foreachRDD(lambda: 1)
    with pytest.raises(ConfigError, match="missing a required argument: 'd'"):
        stream.foreachRDD(lambda a, b, c, d: 1)
    with pytest.raises(ConfigError, match=r"f\(df, batch_id\) or f\(df, batch_id, output\)"):
        ssc.socketTextStream("localhost", 9).foreachBatch(lambda df: 1)
    stream.foreachRDD(print)  # takes any number


@pytest.mark.parametrize("name", ["../escape", "", "a/b", ".hidden", "x" * 129])
def test_names_that_would_be_paths(ssc: StreamingContext, name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        ssc.socketTextStream("localhost", 9, name=name)


def test_two_inputs_of_one_name(ssc: StreamingContext) -> None:
    ssc.socketTextStream("localhost", 9, name="lines")
    with pytest.raises(StreamingError, match="two inputs are named 'lines'"):
        ssc.socketTextStream("localhost", 10, name="lines")


def test_checkpoint_location_of_an_unknown_kind(ssc: StreamingContext) -> None:
    with pytest.raises(ConfigError, match="nosuch"):
        ssc.checkpoint("nosuch://bucket/x")


def test_no_checkpoint_location_on_a_cluster(
    ssc: StreamingContext, sc: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssc.queueStream([[1]]).foreachRDD(ignore)
    monkeypatch.setattr(sc, "master", "spark://host:7077")
    with pytest.raises(
        ConfigError, match=r"no checkpoint location.*is a cluster.*checkpoint\(dir\)"
    ):
        ssc.start()


def test_an_exactly_once_output_needs_a_location(ssc: StreamingContext) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1"}
    ssc.queueStream([[b"1"]]).to_kafka("t", conf, delivery="exactly_once", name="copy")
    with pytest.raises(ConfigError, match=r"output 'copy' is exactly-once.*outlives the program"):
        ssc.start()


def test_a_kafka_stream_without_a_location_is_told(
    ssc: StreamingContext, caplog: pytest.LogCaptureFixture
) -> None:
    ssc.kafkaStream(["t"], {"bootstrap.servers": "127.0.0.1:1"}, name="in").foreachRDD(ignore)
    with pytest.raises(KafkaError):
        ssc.start()
    assert "each start of input in is a first one" in caplog.text


def test_arguments_of_kafka_streams(ssc: StreamingContext) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigError, match="valueDecoder='utf-8' is not possible"):
        ssc.kafkaStream(["t"], conf, valueDecoder="utf-8")  # type: ignore[arg-type]
    decoded = ssc.kafkaStream(["t"], conf, valueDecoder=bytes.decode, name="in")
    with pytest.raises(ConfigError, match="stream 'in' has decoders, so it has no DataFrame"):
        decoded.foreachBatch(ignore)


def test_a_str_is_one_topic(ssc: StreamingContext) -> None:
    conf = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g"}
    assert ssc.kafkaStream("clicks", conf).topics == ["clicks"]  # type: ignore[attr-defined]


def test_a_temporary_journal_is_removed_at_stop(
    ssc: StreamingContext, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock.streaming.context")
    ssc.socketTextStream("localhost", 9).foreachRDD(ignore)
    ssc.start()
    journal = ssc.graph.inputs[0].journal
    assert journal.storage.exists("socket-0/stream.json")
    location = journal.storage.url.removeprefix("file://").removesuffix("/journal")
    assert f"offsets, commits and journal are in {location}" in caplog.text
    assert "the records of input socket-0 are deleted, also those that were ack" in caplog.text
    ssc.stop(stopSparkContext=False)
    assert not journal.storage.exists("socket-0/stream.json")


def test_a_temporary_location_retains_no_batches_to_go_back_to(
    ssc: StreamingContext, clock: ManualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    ssc.queueStream([[1]] * 20).foreachRDD(ignore)
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(20)
    for log in ("offsets", "commits"):  # what is cleaned up lags behind by a batch or two
        assert 1 <= len(list(tmp_path.glob(f"penstock-run-*/{log}/[0-9]*"))) <= 6


def test_receivers_that_leave_no_slot(ssc: StreamingContext) -> None:
    for port in (9, 10):
        ssc.socketTextStream("localhost", port, receivers=2).pprint()
    with pytest.raises(ConfigError, match="would take all 4 task slot"):
        ssc.start()
    assert StreamingContext.getActive() is None


def test_checkpoint_location_in_use_by_another_program(
    ssc: StreamingContext, sc: SparkContext, tmp_path: Path
) -> None:
    from penstock.checkpoint import CheckpointLocation

    ssc.checkpoint(str(tmp_path))
    ssc.queueStream([[1]]).foreachRDD(ignore)
    with CheckpointLocation(tmp_path), pytest.raises(ConcurrentDriverError, match="another driver"):
        ssc.start()


def test_program_with_other_inputs_is_refused(
    sc: SparkContext, clock: ManualClock, tmp_path: Path
) -> None:
    def program(*names: str) -> StreamingContext:
        ssc = StreamingContext(sc, 1, clock=clock)
        ssc.checkpoint(str(tmp_path / "ck"))
        for name in names:
            ssc.tailStream(str(tmp_path / "none.log"), name=name).foreachRDD(ignore)
        return ssc

    ssc = program("lines")
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step()
    ssc.stop(stopSparkContext=False)

    renamed = program("other")
    with pytest.raises(RecoveryMismatchError, match=r"'lines'.*not in the program.*'other'"):
        renamed.start()
    assert StreamingContext.getActive() is None


def test_late_ticks_of_a_queue_of_one_rdd_each_take_one_and_leave_the_rest(
    ssc: StreamingContext, clock: ManualClock
) -> None:
    running, go_on = threading.Event(), threading.Event()
    seen: list[list[int]] = []

    def hold(rdd: RDD[int]) -> None:
        running.set()
        assert go_on.wait(WAIT_S)
        seen.append(rdd.collect())

    ssc.queueStream([[1], [2], [3]]).foreachRDD(hold)
    stepper = Stepper(ssc, clock)
    ssc.start()
    clock.advance(1000)
    assert running.wait(WAIT_S)
    clock.advance(2000)
    go_on.set()
    stepper.wait_completed(2)
    assert seen == [[1], [2]]
    stepper.step()
    assert seen == [[1], [2], [3]]


def test_late_batches_are_told_in_words(
    ssc: StreamingContext, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """And not at the start, when Spark's workers start, too."""
    release = threading.Event()
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: release.wait(WAIT_S))
    begun_ms = clock.time_ms()
    ssc.start()

    def told() -> bool:
        clock.advance(1000)
        return "The next batch has waited" in caplog.text

    assert eventually(told)
    release.set()
    assert clock.time_ms() > begun_ms + 30_000
    (said,) = (each for each in caplog.messages if each.startswith("The next batch has waited"))
    assert re.search(r"for \d+\.\d s, since 1970-01-01T00:\d\d:\d\d\.\d{3}Z: the batches bef", said)
    assert "take longer than the batch interval of 1 s" in said


def test_each_batch_is_logged(
    ssc: StreamingContext, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "penstock.streaming.engine")
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    stepper = Stepper(ssc, clock)
    ssc.start()
    (done,) = stepper.step()
    (line,) = (message for message in caplog.messages if message.startswith("batch "))
    assert line == (
        f"batch batch_id=0 batch_time={iso_time(done.batch_time_ms)} result=committed records=0 "
        "scheduling_delay_ms=0 processing_ms=0 outputs=1"
    )
