"""What listeners are told, and when."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.streaming import StreamingListener as TheirListener

from penstock.receivers import Receiver, Status
from penstock.streaming import BatchInfo, StreamingContext, StreamingListener
from penstock.streaming.engine.receiver_events import ReceiverProgress
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.settings import spark_settings
from tests.waiting import WAIT_S, eventually


class Names(StreamingListener):
    """Notes the events' names, and the events."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.events: list[Any] = []

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("on"):
            return super().__getattribute__(name)

        def note(event: Any) -> None:
            self.names.append(name.removeprefix("on"))
            self.events.append(event)

        return note


BATCH = [
    "BatchSubmitted",
    "BatchStarted",
    *["OutputOperationStarted", "OutputOperationCompleted"] * 2,
    "BatchCompleted",
]


@pytest.mark.spark
def test_order_and_facts_of_events(ssc: StreamingContext, clock: ManualClock) -> None:
    listener = Names()
    ssc.addStreamingListener(listener)
    source = ssc.queueStream([[1], [2]])
    source.pprint()
    source.foreachRDD(lambda rdd: clock.advance(7))
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step()
    ssc.stop(stopSparkContext=False)

    assert listener.names == ["StreamingStarted", *BATCH]
    assert listener.events[0].time() == 1_000_000
    batch: BatchInfo = listener.events[-1].batchInfo()
    assert batch is stepper.completed[0]
    assert (batch.batch_id, batch.batchTime().milliseconds()) == (0, 1_001_000)
    assert str(batch.batchTime()) == "1001000 ms"
    assert (batch.schedulingDelay(), batch.processingDelay(), batch.totalDelay()) == (0, 7, 7)
    printed, advanced = batch.outputOperationInfos().values()
    assert (printed.id(), advanced.id()) == (0, 1)
    assert printed.name().startswith("pprint at test_listener.py:")
    assert advanced.name().startswith("foreachRDD at test_listener.py:")
    assert advanced.description().splitlines()[0].startswith("test_order_and_facts_of_events (")
    assert advanced.endTime() - advanced.startTime() == 7
    waiting: BatchInfo = listener.events[1].batchInfo()
    assert (waiting.schedulingDelay(), waiting.processingStartTime()) == (-1, -1)
    assert waiting.processing_delay_ms is None


@pytest.mark.spark
def test_records_of_each_input(ssc: StreamingContext, clock: ManualClock, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("a\nb\n")
    ssc.checkpoint(str(tmp_path / "checkpoint"))
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    ssc.tailStream(str(log), name="lines").foreachRDD(lambda rdd: None)
    stepper = Stepper(ssc, clock)
    ssc.start()
    while sum(info.num_records for info in stepper.completed) < 2:
        stepper.step()
    (lines,) = stepper.completed[-1].streamIdToInputInfo().values()  # a queue reports nothing
    assert (lines.stream_name, lines.inputStreamId(), lines.numRecords()) == ("lines", 1, 2)
    assert stepper.completed[-1].streamIdToInputInfo().keys() == {1}
    assert lines.metadata() == {}
    assert lines.metadataDescription() is None


class ForPySpark(TheirListener):
    """Written for pyspark.streaming, to the last line."""

    def __init__(self) -> None:
        super(TheirListener, self).__init__()
        self.delays: list[int] = []

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.delays.append(batchCompleted.batchInfo().totalDelay())


@pytest.mark.spark
def test_a_listener_of_pyspark_and_one_that_raises(
    ssc: StreamingContext, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(StreamingListener):
        def onBatchStarted(self, batchStarted: Any) -> None:
            raise KeyError("user's bug")

    listener = ForPySpark()
    ssc.addStreamingListener(Broken())
    ssc.addStreamingListener(listener)  # type: ignore[arg-type]
    ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(2)
    assert listener.delays == [0, 0]
    assert "failed in onBatchStarted" in caplog.text


@pytest.mark.spark
def test_batches_of_concurrent_jobs_keep_their_events_in_order(
    sc: SparkContext, clock: ManualClock
) -> None:
    with spark_settings(sc, {"spark.streaming.concurrentJobs": "4"}):
        ssc = StreamingContext(sc, 1, clock=clock)
    together = threading.Barrier(4)
    listener = Names()
    ssc.addStreamingListener(listener)
    source = ssc.queueStream([[1]])
    for _ in range(4):
        source.foreachRDD(lambda rdd: together.wait(WAIT_S))
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(3)
    ssc.stop(stopSparkContext=False)
    for number in range(3):
        names = listener.names[1 + 11 * number :][:11]
        assert names[:2] == ["BatchSubmitted", "BatchStarted"]
        assert sorted(names[2:10]) == [
            *["OutputOperationCompleted"] * 4,
            *["OutputOperationStarted"] * 4,
        ]
        assert names[10] == "BatchCompleted"


class Restarting(Receiver):
    """Asks for one restart, then stores a record."""

    schema = "string"

    def __init__(self, flag: Path) -> None:
        self.flag = flag

    def onStart(self) -> None:
        def work() -> None:
            if self.flag.exists():
                self.store("done")
            else:
                self.flag.touch()
                self.restart("no connection", OSError("refused"), 1)

        threading.Thread(target=work, daemon=True).start()

    def onStop(self) -> None:
        pass


@pytest.mark.spark
def test_events_of_a_receiver(ssc: StreamingContext, clock: ManualClock, tmp_path: Path) -> None:
    listener = Names()
    ssc.addStreamingListener(listener)
    ssc.receiverStream(Restarting(tmp_path / "flag")).foreachRDD(lambda rdd: None)
    ssc.start()
    assert eventually(lambda: "ReceiverError" in listener.names)
    assert eventually(lambda: listener.events[-1].receiverInfo().active())
    ssc.stop(stopSparkContext=False)

    infos = [event.receiverInfo() for event in listener.events[1:]]
    assert listener.names[0] == "StreamingStarted"
    assert listener.names[-1] == "ReceiverStopped"
    assert {info.name() for info in infos} == {"Restarting-0"}
    assert infos[-1].streamId() == 0
    assert infos[-1].lastErrorMessage() == "no connection: refused"
    assert infos[-1].lastErrorTime() > 0
    assert infos[-1].location()
    assert infos[-1].executorId().isdigit()


STARTED = Status("run", "r0-00000001", "started", "host", 7, 1000)


def told(progress: ReceiverProgress, status: Status) -> list[str]:
    names = [type(event).__name__ for event in progress.see(status)]
    return [name.removeprefix("StreamingListenerReceiver") for name in names]


def test_receiver_events_by_status() -> None:
    progress = ReceiverProgress(3, "R-3")
    assert told(progress, STARTED) == ["Started"]
    assert told(progress, STARTED) == []
    failed = replace(STARTED, state="restarting", errors=1, last_error="e", changed_ms=2000)
    assert told(progress, failed) == ["Error", "Stopped"]
    assert (progress.info.lastErrorTime(), progress.info.active()) == (2000, False)
    again = replace(failed, state="started", changed_ms=3000)
    assert told(progress, again) == ["Started"]
    assert told(progress, replace(again, errors=2)) == ["Error"]  # goes on receiving
    other = replace(STARTED, pid=8, errors=1, last_error="e2")
    assert told(progress, other) == ["Error", "Stopped", "Started"]
    assert told(progress, replace(other, state="stopped")) == ["Stopped"]
    assert progress.end() == []


def test_the_last_words_of_a_task_that_ended_are_not_a_start() -> None:
    progress = ReceiverProgress(3, "R-3")
    assert told(progress, STARTED) == ["Started"]
    assert [type(event).__name__ for event in progress.task_failed("killed", 1500)] == [
        "StreamingListenerReceiverError",
        "StreamingListenerReceiverStopped",
    ]
    assert told(progress, STARTED) == []
    assert told(progress, replace(STARTED, pid=8, changed_ms=2000)) == ["Started"]
