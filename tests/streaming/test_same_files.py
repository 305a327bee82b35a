"""The same files and the same listener on pyspark.streaming and on penstock."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.streaming import StreamingListener as TheirListener

from penstock.errors import BatchFailedError
from penstock.streaming import StreamingListener
from tests.streaming.engines import Outputs, collect, ours, step_theirs, theirs
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

pytestmark = pytest.mark.spark

Script = list[list[tuple[str, bytes, float]]]
"""What comes into the directory before each batch: name, content, modification time in seconds."""

FILES: Script = [
    [("a", b"a1\na2\n", 0.5), ("b", b"b1", 1), ("c", b"next batch", 1.001), (".hidden", b"x", 0.5)],
    [("late", b"late\n", 0.5), ("empty", b"", 1.5), ("crlf", b"1\r\n2\r3\n", 1.5)],
    [("utf-8", "ä€\n".encode(), 2.5), ("broken", b"\xff\xfd\n", 2.5), ("old", b"x", 0)],
    [],
    [("in the future", b"f", 7), ("same time", b"s", 2.5)],
    [("late enough to be lost", b"x", 1), ("just not", b"y", 1.001)],
    [("a", b"a again", 6.5)],
]
RECORDS: Script = [[("a", b"abcdef", 0.5)], [], [("b", b"ghi", 2.5), ("c", b"", 2.5)]]


@pytest.fixture(autouse=True)
def short_memory(sc: SparkContext) -> Iterator[None]:
    with spark_settings(sc, {"spark.streaming.fileStream.minRememberDuration": "5s"}):
        yield


def put(folder: Path, files: list[tuple[str, bytes, float]]) -> None:
    for name, content, at_s in files:
        coming = folder.parent / f"{folder.name}.coming"
        coming.write_bytes(content)
        os.utime(coming, (at_s, at_s))
        coming.rename(folder / name)


def run_ours(sc: SparkContext, folder: Path, script: Script, define: Any) -> Any:
    with ours(sc) as (ssc, stepper):
        seen: Outputs = {"end": []}
        collect(define(ssc, folder), seen["end"])
        ssc.start()
        for files in script:
            put(folder, files)
            stepper.step()
    return seen["end"]


def run_theirs(sc: SparkContext, folder: Path, script: Script, define: Any) -> Any:
    with theirs(sc, folder.parent / "checkpoint") as ssc:
        seen: Outputs = {"end": []}
        collect(define(ssc, folder), seen["end"])
        ssc.start()
        for files in script:
            put(folder, files)
            step_theirs(ssc, seen, 1)
    return seen["end"]


@pytest.mark.parametrize(
    ("script", "define"),
    [
        (FILES, lambda ssc, folder: ssc.textFileStream(str(folder))),
        (FILES, lambda ssc, folder: ssc.textFileStream(f"{folder}*").glom()),
        (FILES, lambda ssc, folder: ssc.textFileStream(f"file://{folder}").window(3).count()),
        (RECORDS, lambda ssc, folder: ssc.binaryRecordsStream(str(folder), 3)),
    ],
    ids=["lines", "partitions of a glob", "window", "binary records"],
)
def test_same_records(
    sc: SparkContext, tmp_path: Path, script: Script, define: Callable[[Any, Path], Any]
) -> None:
    results = []
    for run in (run_ours, run_theirs):
        folder = tmp_path / run.__name__
        folder.mkdir()
        results.append(run(sc, folder, script, define))
    mine, other = results
    assert mine == other
    assert len(mine) == len(script)


class Recorder:
    """Notes events as a listener of pyspark.streaming sees them: by methods of Java objects."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def onStreamingStarted(self, streamingStarted: Any) -> None:
        assert streamingStarted.time() >= 0

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:
        self.note("submitted", batchSubmitted.batchInfo())

    def onBatchStarted(self, batchStarted: Any) -> None:
        self.note("started", batchStarted.batchInfo())

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.note("completed", batchCompleted.batchInfo())

    def onOutputOperationStarted(self, outputOperationStarted: Any) -> None:
        self.events.append(self.output(outputOperationStarted.outputOperationInfo()))

    def onOutputOperationCompleted(self, outputOperationCompleted: Any) -> None:
        self.events.append(self.output(outputOperationCompleted.outputOperationInfo()))

    def note(self, event: str, info: Any) -> None:
        for stream_id in info.streamIdToInputInfo():
            taken = info.streamIdToInputInfo()[stream_id]
            files = [Path(file).name for file in taken.metadataDescription().splitlines()]
            inputs = (stream_id, taken.inputStreamId(), taken.numRecords(), files)
        outputs = info.outputOperationInfos()
        times = (info.processingStartTime(), info.processingEndTime())
        delays = (info.schedulingDelay(), info.processingDelay(), info.totalDelay())
        self.events.append(
            (
                event,
                info.batchTime().milliseconds(),
                info.submissionTime() >= 0,
                [time != -1 for time in times],
                [delay != -1 for delay in delays],
                info.numRecords(),
                inputs,
                [self.output(outputs[output_id]) for output_id in sorted(outputs)],
            )
        )

    @staticmethod
    def output(info: Any) -> Any:
        assert info.name()
        assert info.description()
        reason = info.failureReason()
        return (
            info.batchTime().milliseconds(),
            info.id(),
            info.startTime() != -1,
            info.endTime() != -1,
            None if reason is None else "user's bug" in reason,
        )


class OursRecorder(Recorder, StreamingListener):
    pass


class TheirsRecorder(Recorder, TheirListener):
    pass


def define_outputs(ssc: Any, folder: Path, seen: Outputs) -> None:
    lines = ssc.textFileStream(str(folder))
    lines.pprint()
    lines.foreachRDD(fail_on_b)
    collect(lines, seen["end"])


def fail_on_b(rdd: Any) -> None:
    if rdd.collect() == ["b"]:
        raise KeyError("user's bug")


def test_same_events(continuing: None, sc: SparkContext, tmp_path: Path) -> None:
    script: Script = [[("a", b"a", 0.5)], [("b", b"b", 1.5)], []]
    folder = tmp_path / "ours"
    folder.mkdir()
    mine = OursRecorder()
    with ours(sc) as (ssc, stepper):
        ssc.addStreamingListener(mine)
        seen: Outputs = {"end": []}
        define_outputs(ssc, folder, seen)
        ssc.start()
        for number, files in enumerate(script):
            put(folder, files)
            if number == 1:
                with pytest.raises(BatchFailedError):
                    stepper.step()
                assert eventually(lambda: len(stepper.completed) == 2)
                ssc._life._error = None
            else:
                stepper.step()

    folder = tmp_path / "theirs"
    folder.mkdir()
    other = TheirsRecorder()
    with theirs(sc, tmp_path / "checkpoint") as their_ssc:
        their_ssc.addStreamingListener(other)
        seen = {"end": []}
        define_outputs(their_ssc, folder, seen)
        their_ssc.start()
        for number, files in enumerate(script):
            put(folder, files)
            their_ssc._jssc.ssc().scheduler().clock().advance(1000)
            wanted = 9 * (number + 1)
            assert eventually(lambda wanted=wanted: len(other.events) == wanted)  # type: ignore[misc]
    assert mine.events == other.events
    assert len(mine.events) == 27
