"""Where a program's inputs begin is said once in the life of its checkpoint location."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.journal import JournalStream, RecordFormat
from penstock.storage import open_storage
from penstock.streaming import InputDStream, SourceRange, StreamingContext
from penstock.testing import ManualClock
from tests.journal.helpers import write_blocks
from tests.streaming.runs import Runs

pytestmark = pytest.mark.spark


class Topic:
    """A log of numbers: each has its index as its offset."""

    def __init__(self) -> None:
        self.end = 0


class TopicInput(InputDStream):
    """Begins at the topic's end; its offsets have topics as keys, and not the input's name."""

    def __init__(self, ssc: StreamingContext, topic: Topic, name: str) -> None:
        super().__init__(ssc, name)
        self.topic = topic
        self.asked = 0

    def check_offset(self, offset: Any) -> None:
        assert offset is None or set(offset) == {"orders", "returns"}

    def initial_offset(self) -> Any:
        self.asked += 1
        return self._here()

    def latest_offset(self, start: Any, time_ms: int) -> Any:
        return self._here()

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        start, end = (offset["orders"]["0"] for offset in (wanted.start, wanted.end))
        return self.ssc.sparkContext.parallelize(range(start, end), 1)

    def _here(self) -> Any:
        return {"orders": {"0": self.topic.end}, "returns": {"0": 0}}


class Program(Runs):
    """A program of one stream."""

    def __init__(
        self, sc: SparkContext, clock: ManualClock, location: Path, make: Callable[..., Any]
    ) -> None:
        super().__init__(sc, location, clock)
        self.make = make
        self.seen: list[Any] = []

    def run(self, batches: int, **how: Any) -> Any:
        """Start, run some batches, and end; return the input."""
        stream: Any = None

        def define(ssc: StreamingContext) -> None:
            nonlocal stream
            stream = self.make(ssc, **how)
            stream.foreachRDD(lambda rdd: self.seen.extend(rdd.collect()))

        with self.running_program(define) as stepper:
            stepper.step(batches)
        return stream


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def program(sc: SparkContext, clock: ManualClock, tmp_path: Path, topic: Topic) -> Program:
    return Program(
        sc, clock, tmp_path / "checkpoint", lambda ssc, name="in": TopicInput(ssc, topic, name)
    )


def test_an_own_input_is_asked_once(program: Program, topic: Topic) -> None:
    topic.end = 5
    assert program.run(0).asked == 1
    topic.end = 7
    assert program.run(0).asked == 0
    assert program.run(1).asked == 0
    topic.end = 8
    assert program.run(1).asked == 0
    assert program.seen == [5, 6, 7]


def test_a_first_batch_that_runs_again_begins_where_it_did(program: Program, topic: Topic) -> None:
    program.run(0)
    topic.end = 3
    program.run(1)
    (program.location / "commits/0").unlink()
    topic.end = 4
    program.run(2)
    assert program.seen == [0, 1, 2, 0, 1, 2, 3]


def test_an_input_that_is_renamed_before_the_first_batch_begins_anew_with_a_warning(
    program: Program, topic: Topic, caplog: pytest.LogCaptureFixture
) -> None:
    program.run(0)
    topic.end = 3
    with caplog.at_level(logging.WARNING):
        assert program.run(1, name="other").asked == 1
    assert "first offset of input 'in', which is not in the program" in caplog.text
    assert program.seen == []
    assert sorted(os.listdir(program.location / "sources")) == ["in", "other"]


def test_an_input_without_a_record_of_its_first_offset_continues(
    program: Program, topic: Topic
) -> None:
    program.run(1)
    shutil.rmtree(program.location / "sources")  # as a release left it that did not write it
    topic.end = 2
    assert program.run(1).asked == 0
    assert program.seen == [0, 1]
    assert not (program.location / "sources").exists()


def test_new_files_are_those_since_the_first_start(
    sc: SparkContext, clock: ManualClock, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def write(name: str) -> None:
        (folder / name).write_text(f"{name}\n")
        os.utime(folder / name, (clock.time_ms() / 1000,) * 2)

    program = Program(
        sc, clock, tmp_path / "checkpoint", lambda ssc: ssc.textFileStream(str(folder), name="in")
    )
    write("before")
    clock.advance(5000)
    program.run(0)
    clock.advance(5000)
    write("between")
    clock.advance(5000)
    program.run(1)
    assert program.seen == ["between"]


def test_a_file_stream_that_is_added_takes_no_file_for_ticks_before_it(
    sc: SparkContext, clock: ManualClock, tmp_path: Path, topic: Topic
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()

    def make(ssc: StreamingContext, *, adds_files: bool = False) -> Any:
        numbers = TopicInput(ssc, topic, "numbers")
        if not adds_files:
            return numbers
        numbers.foreachRDD(lambda rdd: None)
        return ssc.textFileStream(str(folder), name="files").window(2)

    program = Program(sc, clock, tmp_path / "checkpoint", make)
    program.run(1)
    clock.advance(5000)
    (folder / "before").write_text("before\n")
    os.utime(folder / "before", (clock.time_ms() / 1000,) * 2)
    clock.advance(5000)
    program.run(2, adds_files=True)
    assert program.seen == []


def test_the_end_of_a_journal_is_that_of_the_first_start(
    sc: SparkContext, clock: ManualClock, tmp_path: Path
) -> None:
    storage = open_storage(tmp_path / "journal")
    clicks = JournalStream.create(storage, "clicks", RecordFormat("string"))
    program = Program(
        sc,
        clock,
        tmp_path / "checkpoint",
        lambda ssc: ssc.journalStream("clicks", storage.url, name="in", startingOffsets="latest"),
    )
    write_blocks(clicks, [["before"]])
    program.run(0)
    write_blocks(clicks, [["between"]])
    for file in (tmp_path / "journal/clicks/consumers").iterdir():
        file.unlink()  # as a kill leaves it before the file is there
    program.run(1)
    assert program.seen == ["between"]
