"""ssc.journalStream: streams of a journal that somebody else writes, beside other consumers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.checkpoint import CheckpointLocation
from penstock.errors import BatchFailedError, ConfigError
from penstock.journal import (
    JournalStream,
    RecordFormat,
    commit_consumer,
    consumers,
    ranges_between,
    read_records,
    remove_consumer,
    retire,
)
from penstock.storage import open_storage
from penstock.streaming import DStream, StreamingContext
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.journal.helpers import read_after, write_blocks
from tests.streaming.runs import Runs

pytestmark = pytest.mark.spark

Retain = Callable[[int], None]


@pytest.fixture
def stream(tmp_path: Path) -> JournalStream:
    return JournalStream.create(open_storage(tmp_path / "j"), "clicks", RecordFormat("string"))


class Reader(Runs):
    """A program over the journal."""

    def __init__(self, sc: SparkContext, location: Path, stream: JournalStream) -> None:
        super().__init__(sc, location)
        self.stream = stream
        self.seen: list[list[Any]] = []
        self.failing = False

    @contextmanager
    def running(self, **options: Any) -> Iterator[Stepper]:
        def define(ssc: StreamingContext) -> None:
            self.define(ssc.journalStream("clicks", self.stream.storage.url, **options))

        with self.running_program(define) as stepper:
            yield stepper

    def define(self, stream: DStream) -> None:
        stream.foreachRDD(self._collect)

    def _collect(self, rdd: RDD[Any]) -> None:
        if self.failing:
            raise ValueError("as ordered")
        self.seen.append(sorted(rdd.collect()))


@pytest.fixture
def reader(sc: SparkContext, tmp_path: Path, stream: JournalStream) -> Reader:
    return Reader(sc, tmp_path / "checkpoint", stream)


def test_it_takes_what_others_write_and_goes_on_after_a_restart(reader: Reader) -> None:
    write_blocks(reader.stream, [["a"], ["b"]])
    with reader.running() as stepper:
        stepper.step()
        write_blocks(reader.stream, [["c"]], receiver="ingest", close=False)
        stepper.step()
    write_blocks(reader.stream, [["d"]], receiver="ingest")
    with reader.running() as stepper:
        stepper.step(2)
    assert reader.seen == [["a", "b"], ["c"], ["d"], []]


def test_it_has_columns(reader: Reader) -> None:
    def define(stream: DStream) -> None:
        stream.foreachBatch(lambda df, batch_id: reader.seen.append(df.collect()))

    reader.define = define  # type: ignore[method-assign]
    write_blocks(reader.stream, [["a"]])
    with reader.running() as stepper:
        stepper.step()
    assert [[row.value for row in rows] for rows in reader.seen] == [["a"]]


def test_it_begins_at_the_oldest_block_held_and_a_first_batch_runs_again_from_there(
    reader: Reader,
) -> None:
    writer = write_blocks(reader.stream, [["a"], ["b"], ["c"]], close=False)
    commit_consumer(reader.stream, "other", {str(writer): 2})
    assert retire(reader.stream) == 2
    reader.failing = True
    with reader.running() as stepper, pytest.raises(BatchFailedError):
        stepper.step()
    reader.failing = False
    write_blocks(reader.stream, [["d"]])
    with reader.running() as stepper:
        stepper.wait_completed(1)  # the one that failed
        stepper.step()
    assert reader.seen == [["c"], ["d"]]


def test_latest_is_what_comes_from_the_first_start_on(reader: Reader) -> None:
    write_blocks(reader.stream, [["a"]], close=False)
    with reader.running(startingOffsets="latest"):
        write_blocks(reader.stream, [["b"]], close=False)
    write_blocks(reader.stream, [["c"]], receiver="new")
    with reader.running(startingOffsets="latest") as stepper:
        stepper.step()
    assert reader.seen == [["b", "c"]]


def test_a_new_reader_holds_blocks_back_before_its_first_batch(
    reader: Reader, retain: Retain
) -> None:
    retain(1)
    writer = write_blocks(reader.stream, [["a"], ["b"], ["c"]])
    with reader.running() as stepper:
        commit_consumer(reader.stream, "other", {str(writer): 3})
        assert retire(reader.stream) == 0
        stepper.step(5)
    assert reader.seen == [["a", "b", "c"], [], [], [], []]
    assert len(reader.stream.blocks(writer)) == 1  # the seal: what is read is retired by the reader


def test_each_program_is_a_consumer_of_its_own(sc: SparkContext, reader: Reader) -> None:
    write_blocks(reader.stream, [["a"]])
    other = Reader(sc, reader.location.with_name("other"), reader.stream)
    for program in (reader, other, reader, other):
        with program.running() as stepper:
            stepper.step()
    assert reader.seen == other.seen == [["a"], []]
    assert len(consumers(reader.stream)) == 2


def test_a_consumer_is_called_after_its_application_and_keeps_its_name(reader: Reader) -> None:
    write_blocks(reader.stream, [["a"], ["b"]])
    with reader.running():
        (name,) = consumers(reader.stream)
    assert re.fullmatch("penstock-tests-clicks-[0-9a-f]{8}", name)
    folder = Path(reader.stream.storage.url.removeprefix("file://"), "clicks", "consumers")
    (folder / f"{name}.json").rename(folder / "clicks-as-an-earlier-release-called-it.json")
    with reader.running() as stepper:
        stepper.step()
    assert list(consumers(reader.stream)) == ["clicks-as-an-earlier-release-called-it"]
    assert reader.seen == [["a", "b"]]


def test_two_programs_cannot_share_a_consumer(sc: SparkContext, reader: Reader) -> None:
    other = Reader(sc, reader.location.with_name("other"), reader.stream)
    with reader.running(consumer="mine"):
        pass
    with reader.running(consumer="mine"):
        assert list(consumers(reader.stream)) == ["mine"]
    with (
        pytest.raises(ConfigError, match="has another owner"),
        other.running(consumer="mine"),
    ):
        pass
    remove_consumer(reader.stream, "mine")
    with other.running(consumer="mine"):
        pass


def test_a_program_and_a_plain_reader_each_at_its_own_pace(reader: Reader, retain: Retain) -> None:
    """Neither loses what it has yet to read, nor keeps what both have read."""
    retain(1)
    stream = reader.stream
    commit_consumer(stream, "query", {})
    first = write_blocks(stream, [["a"], ["b"]], close=False)
    with reader.running() as stepper:
        stepper.step(2)
        second = write_blocks(stream, [["c"], ["d"]], close=False)  # seals the first
        stepper.step(3)
        assert [b.start_offset for b in stream.blocks(first)] == [0, 1, 2]
        records, taken = read_after(stream, {})
        assert records == ["a", "b", "c", "d"]
        write_blocks(stream, [["e"]], receiver="r1")
        commit_consumer(stream, "query", taken)
        stepper.step(4)  # the program has left the first writer; its blocks go all the same
        assert [b.start_offset for b in stream.blocks(first)] == [2]
        assert [b.start_offset for b in stream.blocks(second)] == [1]
    records, taken = read_after(stream, taken)
    assert records == ["e"]
    assert [record for batch in reader.seen for record in batch] == ["a", "b", "c", "d", "e"]


def kept_batches(reader: Reader) -> dict[int, list[str]]:
    """Process again, from the journal alone, each batch that the offset log still tells of."""
    log = CheckpointLocation(reader.location).offsets
    maps = {n: json.loads(str(log.require(n).sources[0]))["clicks"] for n in log.batch_ids()}
    if 0 in maps:
        maps[-1] = {}
    return {
        n: list(read_records(reader.stream, ranges_between(maps[n - 1], maps[n])))
        for n in sorted(maps)
        if n - 1 in maps
    }


def test_whoever_goes_back_within_the_log_finds_the_records(reader: Reader, retain: Retain) -> None:
    retain(3)
    number = 0
    for _ in range(3):  # runs; between them nothing is being cleared up
        with reader.running() as stepper:
            for _ in range(4):
                write_blocks(reader.stream, [[f"{number:02d}"]], close=False)
                stepper.step()
                number += 1
        kept = kept_batches(reader)
        assert kept == {n: [f"{n:02d}"] for n in kept}
        assert {number - 1, number - 2, number - 3} <= kept.keys()
    blocks = {w.epoch: reader.stream.blocks(w)[0].start_offset for w in reader.stream.writers()}
    assert blocks[0] > 0  # what the log does not tell of goes


def test_a_window_keeps_what_it_looks_back_to(reader: Reader, retain: Retain) -> None:
    retain(1)
    stream = reader.stream
    reader.define = lambda clicks: clicks.window(3, 1).foreachRDD(  # type: ignore[method-assign]
        reader._collect
    )
    with reader.running() as stepper:
        for number in range(9):
            write_blocks(stream, [[str(number)]], close=False)
            stepper.step()
        held = [w.epoch for w in stream.writers() if stream.blocks(w)[0].start_offset == 0]
    assert reader.seen[-1] == ["6", "7", "8"]
    assert held[-3:] == [6, 7, 8]
    assert 0 not in held
    with reader.running() as stepper:
        stepper.step()
    assert reader.seen[-1] == ["7", "8"]


def test_it_goes_on_from_its_graph_checkpoint(
    sc: SparkContext, tmp_path: Path, stream: JournalStream
) -> None:
    place, sink = str(tmp_path / "checkpoint"), str(tmp_path / "sink")

    def create() -> StreamingContext:
        ssc = StreamingContext(sc, 0.1)
        ssc.journalStream("clicks", stream.storage.url).map(str.upper).saveAsTextFiles(sink)
        return ssc

    write_blocks(stream, [["a"]])
    for wanted in (["A"], ["A", "B"]):
        ssc = StreamingContext.getOrCreate(place, create)
        ssc.start()
        ssc.stop(stopSparkContext=False, stopGraceFully=True)
        parts = tmp_path.glob("sink-*/part-*")
        assert sorted(line for p in parts for line in p.read_text().split()) == wanted
        write_blocks(stream, [["b"]])


@pytest.mark.parametrize("journal", ["j", "nowhere"])
def test_a_stream_that_is_not_there_is_refused(
    ssc: StreamingContext, stream: JournalStream, tmp_path: Path, journal: str
) -> None:
    with pytest.raises(ConfigError, match="stream 'orders' does not exist") as caught:
        ssc.journalStream("orders", str(tmp_path / journal))
    assert ("'clicks'" in str(caught.value)) == (journal == "j")
    assert not (tmp_path / "nowhere").exists()


def test_wrong_arguments_are_refused(ssc: StreamingContext, stream: JournalStream) -> None:
    with pytest.raises(ConfigError, match="startingOffsets"):
        ssc.journalStream("clicks", stream.storage.url, startingOffsets="now")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="consumer name"):
        ssc.journalStream("clicks", stream.storage.url, consumer="a/b")


def test_it_needs_a_checkpoint_location(ssc: StreamingContext, stream: JournalStream) -> None:
    ssc.journalStream("clicks", stream.storage.url).pprint()
    with pytest.raises(ConfigError, match="checkpoint location"):
        ssc.start()
    assert consumers(stream) == {}


def test_a_stream_with_another_schema_in_its_place_is_refused(
    reader: Reader, tmp_path: Path
) -> None:
    clock = ManualClock(1_000_000)
    ssc = StreamingContext(reader.sc, 1, clock=clock)
    ssc.checkpoint(str(reader.location))
    ssc.journalStream("clicks", reader.stream.storage.url).pprint()
    (tmp_path / "j" / "clicks" / "stream.json").unlink()
    JournalStream.create(reader.stream.storage, "clicks", RecordFormat("binary"))
    with pytest.raises(ConfigError, match="took its name"):
        ssc.start()


def test_a_stream_of_pickles_is_refused_unless_it_is_asked_for(
    ssc: StreamingContext, tmp_path: Path
) -> None:
    journal = open_storage(tmp_path / "pickles")
    JournalStream.create(journal, "clicks", RecordFormat("pickle"))
    with pytest.raises(ConfigError, match="allow_pickle=True"):
        ssc.journalStream("clicks", journal.url)

    assert not ssc.journalStream("clicks", journal.url, allow_pickle=True).has_columns()

    (tmp_path / "pickles").chmod(0o777)
    with pytest.raises(ConfigError, match="may be written by others"):
        ssc.journalStream("clicks", journal.url, name="again", allow_pickle=True)
