"""Streams of new files: which are taken, how they are read, and that each counts once."""

from __future__ import annotations

import gzip
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.serializers import CPickleSerializer

from penstock.errors import (
    BatchFailedError,
    ConfigError,
    RecoveryMismatchError,
    SourceChangedError,
)
from penstock.streaming import DStream, SourceRange, StreamingContext
from penstock.streaming.inputs.files.file_stream import FileInputDStream
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings

pytestmark = pytest.mark.spark

START_S = 1_000_000


def put(path: Path, text: str, at_s: float) -> None:
    """Write a file as it comes into the directory by a move: whole, with its modification time."""
    hidden = path.with_name(f".{path.name}.tmp")
    hidden.write_text(text)
    os.utime(hidden, (at_s, at_s))
    hidden.rename(path)


class Program(Runs):
    """One run, which collects the records of each batch."""

    def __init__(
        self,
        sc: SparkContext,
        location: Path,
        clock: ManualClock,
        streams: Callable[[StreamingContext], DStream],
    ) -> None:
        super().__init__(sc, location, clock)
        self.seen: list[list[Any]] = []
        self.stepper = Stepper(self.create(), clock)
        streams(self.ssc).foreachRDD(lambda rdd: self.seen.append(sorted(rdd.collect())))

    def __enter__(self) -> Program:
        self.ssc.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.stop()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_S * 1000)


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    return folder


@pytest.fixture
def program(
    sc: SparkContext, tmp_path: Path, clock: ManualClock, inbox: Path
) -> Callable[..., Program]:
    def make(streams: Callable[[StreamingContext], DStream] | None = None) -> Program:
        usual = streams or (lambda ssc: ssc.textFileStream(str(inbox), name="in"))
        return Program(sc, tmp_path / "checkpoint", clock, usual)

    return make


@pytest.fixture
def setting(sc: SparkContext) -> Iterator[Callable[[str, str], None]]:
    with ExitStack() as stack:
        yield lambda name, value: stack.enter_context(spark_settings(sc, {name: value}))


def test_each_new_file_is_in_one_batch(program: Any, inbox: Path) -> None:
    put(inbox / "old", "before the stream was made\n", START_S - 1)
    with program() as run:
        put(inbox / "a", "a1\na2\n", START_S + 0.5)
        put(inbox / "b", "b1\n", START_S + 1)
        put(inbox / "c", "not yet\n", START_S + 1.001)
        put(inbox / "_hidden", "no\n", START_S + 0.5)
        put(inbox / "d._COPYING_", "no\n", START_S + 0.5)
        put(inbox / "empty", "", START_S + 0.5)
        (inbox / "folder").mkdir()
        run.stepper.step(3)
    assert run.seen == [["a1", "a2", "b1"], ["not yet"], []]


def test_files_that_show_up_late(program: Any, inbox: Path, setting: Any) -> None:
    setting("spark.streaming.fileStream.minRememberDuration", "5")  # seconds, as Spark reads it
    with program() as run:
        run.stepper.step(2)
        put(inbox / "late", "late\n", START_S + 0.5)
        run.stepper.step(1)
        put(inbox / "more", "more\n", START_S + 0.5)
        run.stepper.step(3)
        put(inbox / "too late", "too late\n", START_S + 2)
        put(inbox / "in time", "in time\n", START_S + 2.001)
        run.stepper.step(1)
    assert run.seen == [[], [], ["late"], ["more"], [], [], ["in time"]]


def test_names_that_are_patterns(program: Any, inbox: Path) -> None:
    names = ["a,b", "c{d", "e}f", "g[1]", "g1", "h*", "hx", "i\\j", "k l", "s?", "sx", "ü%20"]
    with program() as run:
        for name in names:
            put(inbox / name, name, START_S + 1)
        run.stepper.step()
    assert run.seen == [sorted(names)]


def test_globs_of_directories(program: Any, tmp_path: Path) -> None:
    (tmp_path / "day-1").mkdir()
    with program(lambda ssc: ssc.textFileStream(f"file://{tmp_path}/day-*")) as run:
        put(tmp_path / "day-1" / "a", "1", START_S + 1)
        run.stepper.step()
        (tmp_path / "day-2").mkdir()
        put(tmp_path / "day-1" / "b", "2", START_S + 2)
        put(tmp_path / "day-2" / "a", "3", START_S + 2)
        run.stepper.step()
    assert run.seen == [["1"], ["2", "3"]]


def test_a_directory_that_is_made_later(
    program: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    with program(lambda ssc: ssc.textFileStream(str(folder), name="in")) as run:
        run.stepper.step(2)
        folder.mkdir()
        put(folder / "a", "a", START_S + 3)
        run.stepper.step()
    assert run.seen == [[], [], ["a"]]
    assert [r.getMessage() for r in caplog.records if "does not exist yet" in r.getMessage()] == [
        f"Stream in: directory {folder} does not exist yet"
    ]


def test_filter_and_old_files(program: Any, inbox: Path) -> None:
    put(inbox / "old.csv", "old", START_S - 50)
    put(inbox / "older than the remember duration.csv", "no", START_S - 61)
    put(inbox / "old.txt", "no", START_S - 50)

    def is_csv(path: str) -> bool:
        assert path.startswith("file:/")
        return path.endswith(".csv")

    with program(lambda ssc: ssc.fileStream(str(inbox), is_csv, newFilesOnly=False)) as run:
        put(inbox / "new.csv", "new", START_S + 1)
        run.stepper.step(2)
    assert run.seen == [["new", "old"], []]


def test_remember_duration(program: Any, inbox: Path, setting: Any) -> None:
    setting("spark.streaming.fileStream.minRememberDuration", "2500ms")
    put(inbox / "a", "no", START_S - 2)
    put(inbox / "b", "yes", START_S - 1.9)
    with program(lambda ssc: ssc.fileStream(str(inbox), newFilesOnly=False)) as run:
        run.stepper.step()
    assert run.seen == [["yes"]]


def test_byte_order_marks_and_other_encodings(
    program: Any, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with program() as run:
        put(inbox / "marked", "\ufefffirst\r\nsecond\r\n", START_S + 1)
        (inbox / "utf-16").write_bytes("never\n".encode("utf-16"))
        (inbox / "text.gz").write_bytes(gzip.compress(b"packed\n"))
        for name in ("utf-16", "text.gz"):
            os.utime(inbox / name, (START_S + 1, START_S + 1))
        run.stepper.step(2)
    assert run.seen == [["first", "packed", "second"], []]
    (message,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert "UTF-16" in message
    assert f"{inbox}/utf-16" in message


def test_binary_records(program: Any, inbox: Path) -> None:
    with program(lambda ssc: ssc.binaryRecordsStream(str(inbox), 3)) as run:
        put(inbox / "a", "abcdef", START_S + 1)
        put(inbox / "b", "ghi", START_S + 1)
        info = run.stepper.step()[0]
    assert run.seen == [[b"abc", b"def", b"ghi"]]
    assert info.num_records == 3


@pytest.mark.parametrize("length", [0, -1, 1.5, True, "4", None])
def test_wrong_record_length(sc: SparkContext, length: Any) -> None:
    with pytest.raises(ConfigError, match="record length"):
        StreamingContext(sc, 1).binaryRecordsStream("/in", length)


def test_wrong_filter(sc: SparkContext) -> None:
    with pytest.raises(ConfigError, match="is not a function"):
        StreamingContext(sc, 1).fileStream("/in", filter="*.csv")  # type: ignore[arg-type]


def test_data_frames(
    sc: SparkContext, program: Any, inbox: Path, clock: ManualClock, tmp_path: Path
) -> None:
    frames: list[tuple[int, list[Any]]] = []

    def keep(df: Any, batch_id: int) -> None:
        assert df.columns == ["value"]
        assert df.rdd.getNumPartitions() <= 3  # of five files in two batches
        frames.append((batch_id, sorted(row.value for row in df.collect())))

    def streams(ssc: StreamingContext) -> DStream:
        lines = ssc.textFileStream(str(inbox))
        lines.window(2).foreachBatch(keep)
        ssc.binaryRecordsStream(str(inbox), 1).foreachBatch(keep)
        return lines

    with program(streams) as run:
        put(inbox / "a", "ä\n", START_S + 1)
        run.stepper.step()
        for name in "bcde":
            put(inbox / name, name, START_S + 2)
        run.stepper.step(2)
    assert frames == [
        (0, ["ä"]),
        (0, [b"\n", b"\xa4", b"\xc3"]),
        (1, ["b", "c", "d", "e", "ä"]),
        (1, [b"b", b"c", b"d", b"e"]),
        (2, ["b", "c", "d", "e"]),
        (2, []),
    ]


def test_offsets_hold_each_batch_s_own_files(program: Any, inbox: Path, tmp_path: Path) -> None:
    with program() as run:
        put(inbox / "a", "a", START_S + 1)
        run.stepper.step()
        put(inbox / "b", "bb", START_S + 2)
        run.stepper.step()
    entries = [
        json.loads((tmp_path / "checkpoint" / "offsets" / number).read_text().splitlines()[-1])
        for number in "01"
    ]
    url = f"file:{inbox}"
    assert entries == [
        {
            "in": {
                "after": 1_000_000_000,
                "until": 1_000_001_000,
                "files": {url: [["a", 1_000_001_000, 1]]},
            }
        },
        {
            "in": {
                "after": 1_000_000_000,
                "until": 1_000_002_000,
                "files": {url: [["b", 1_000_002_000, 2]]},
            }
        },
    ]


def test_files_before_during_and_after_downtime_count_once(
    program: Any, inbox: Path, clock: ManualClock
) -> None:
    seen = []
    for name, downtime_s in (("a", 5), ("b", 500), ("c", 0)):
        with program() as run:
            now_s = clock.time_ms() / 1000
            put(inbox / f"{name}1", f"{name}1", now_s + 0.5)
            run.stepper.step()
            put(inbox / f"{name}2", f"{name}2", now_s + 0.6)  # shows up after its batch
        put(inbox / f"{name}3", f"{name}3", now_s + 1.5)
        clock.advance(downtime_s * 1000)
        seen += [record for records in run.seen for record in records]
    with program() as run:
        run.stepper.step(2)
    seen += [record for records in run.seen for record in records]
    assert seen == [f"{name}{number}" for name in "abc" for number in (1, 2, 3)]


def test_files_are_taken_when_the_clock_was_a_year_ahead_once(
    program: Any, inbox: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    year_ms = 365 * 86_400_000
    seen = []
    for name, set_by_ms in (("a", year_ms), ("b", -year_ms), ("c", 0)):
        with program() as run:
            for number in (1, 2):
                put(inbox / f"{name}{number}", f"{name}{number}", clock.time_ms() / 1000 + 0.5)
                run.stepper.step()
        seen += [record for records in run.seen for record in records]
        clock.advance(120_000)
        clock.set_wall(set_by_ms)
    assert seen == ["a1", "a2", "b1", "b2", "c1", "c2"]
    assert "Stream in: the clock of this machine was set back" in caplog.text


def fail_once(ssc: StreamingContext, lines: DStream, flag: Path) -> None:
    def output(rdd: Any) -> None:
        if not flag.exists():
            flag.touch()
            raise OSError("sink is down")

    lines.foreachRDD(output)


@pytest.fixture
def cut_off(program: Any, inbox: Path, tmp_path: Path) -> Callable[..., Program]:
    """A program whose batch 0 failed, with the files a and b; made again it runs that batch."""

    def streams(ssc: StreamingContext) -> DStream:
        lines = ssc.textFileStream(str(inbox), name="in")
        fail_once(ssc, lines, tmp_path / "failed")
        return lines

    with program(streams) as run:
        put(inbox / "a", "a", START_S + 1)
        put(inbox / "b", "b", START_S + 1)
        with pytest.raises(BatchFailedError):
            run.stepper.step()
    put(inbox / "c", "c", START_S + 1)
    return lambda: program(streams)


def test_a_batch_that_was_cut_off_runs_again_with_its_files(cut_off: Any) -> None:
    with cut_off() as run:
        run.stepper.wait_completed(1)
        run.stepper.step()
    assert run.seen == [["a", "b"], ["c"]]


def test_a_file_that_was_removed_stops_the_start(cut_off: Any, inbox: Path) -> None:
    (inbox / "a").unlink()
    with pytest.raises(BatchFailedError) as caught, cut_off():
        pass
    cause = caught.value.cause
    assert isinstance(cause, SourceChangedError)
    assert cause.path == f"file:{inbox}/a"
    assert "touch -d @1000001.0" in str(cause)


def test_a_file_that_was_removed_may_be_passed_over(
    cut_off: Any, inbox: Path, setting: Any, caplog: pytest.LogCaptureFixture
) -> None:
    setting("spark.files.ignoreMissingFiles", "true")
    (inbox / "a").unlink()
    with cut_off() as run:
        run.stepper.wait_completed(1)
    assert run.seen == [["b"]]
    assert f"file:{inbox}/a is missing and left out" in caplog.text


def test_a_file_that_was_changed_stops_the_start(cut_off: Any, inbox: Path) -> None:
    put(inbox / "a", "aa", START_S + 1)
    with pytest.raises(BatchFailedError) as caught, cut_off():
        pass
    assert isinstance(caught.value.cause, SourceChangedError)
    assert "it had 1 bytes" in str(caught.value.cause)
    put(inbox / "a", "A", START_S + 1)  # as the hint says
    with cut_off() as run:
        run.stepper.wait_completed(1)


def test_a_file_that_is_removed_while_its_batch_runs_is_named(program: Any, inbox: Path) -> None:
    def streams(ssc: StreamingContext) -> DStream:
        lines = ssc.textFileStream(str(inbox))
        lines.foreachRDD(lambda rdd: (inbox / "a").unlink())
        return lines

    with program(streams) as run:
        put(inbox / "a", "a", START_S + 1)
        with pytest.raises(BatchFailedError) as caught:
            run.stepper.step()
    assert isinstance(caught.value.cause, SourceChangedError)
    assert caught.value.cause.path == f"file:{inbox}/a"


def test_a_file_that_grows_after_its_batch_is_told(
    program: Any, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with program() as run:
        put(inbox / "a", "a\n", START_S + 1)
        run.stepper.step()
        put(inbox / "a", "a\nb\n", START_S + 1.5)
        caplog.set_level(logging.ERROR)
        run.stepper.step(2)
    assert run.seen == [["a"], [], []]
    assert caplog.text.count(f"file:{inbox}/a changed after a batch took it") == 1


def test_a_listing_that_fails_passes_nothing_over(
    program: Any, inbox: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with program(lambda ssc: ssc.textFileStream(f"{inbox}/{{sub")) as run:  # no glob that compiles
        run.stepper.step()
        assert "cannot be listed" in caplog.text
        run.ssc.graph.inputs[0].directory = str(inbox)  # type: ignore[attr-defined]
        put(inbox / "a", "a", START_S + 0.5)
        run.stepper.step()
    assert run.seen == [[], ["a"]]


def test_windows_reach_back_over_a_restart(program: Any, inbox: Path, clock: ManualClock) -> None:
    def streams(ssc: StreamingContext) -> DStream:
        return ssc.textFileStream(str(inbox), name="in").window(3)

    with program(streams) as run:
        put(inbox / "a", "a", START_S + 1)
        run.stepper.step()
        put(inbox / "b", "b", START_S + 2)
        run.stepper.step()
    with program(streams) as again:
        again.stepper.step(2)
    assert run.seen + again.seen == [["a"], ["a", "b"], ["a", "b"], ["b"]]
    (inbox / "b").unlink()
    with pytest.raises(SourceChangedError, match="removed"), program(streams):
        pass


def test_a_committed_file_may_go(program: Any, inbox: Path) -> None:
    with program() as run:
        put(inbox / "a", "a", START_S + 1)
        run.stepper.step()
    (inbox / "a").unlink()
    with program() as again:
        again.stepper.step()
    assert run.seen + again.seen == [["a"], []]


def test_graceful_stop_takes_what_is_there_and_no_empty_batch(program: Any, inbox: Path) -> None:
    with program() as run:
        run.stepper.step()
        put(inbox / "a", "a", START_S + 0.5)
        run.ssc.stop(stopSparkContext=False, stopGraceFully=True)
    with program() as idle:
        idle.ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert run.seen + idle.seen == [[], ["a"]]


def test_an_offset_of_another_kind_of_input(program: Any, tmp_path: Path, sc: SparkContext) -> None:
    with program(lambda ssc: ssc.queueStream([[1]])) as run:
        run.stepper.step()
    with (
        pytest.raises(RecoveryMismatchError, match="not an offset of files"),
        program(lambda ssc: ssc.textFileStream(str(tmp_path), name="queue-0")),
    ):
        pass


def test_a_stream_from_a_graph_checkpoint_goes_on_where_it_was(
    sc: SparkContext, clock: ManualClock, inbox: Path
) -> None:
    ssc = StreamingContext(sc, 1, clock=clock)
    stream = ssc.textFileStream(str(inbox), name="in")
    put(inbox / "a", "a", START_S + 1)
    assert isinstance(stream, FileInputDStream)
    clock.advance(2_000)
    taken = stream.latest_offset(None, START_S * 1000 + 1000)
    clock.advance(58_000)
    again = CPickleSerializer().loads(CPickleSerializer().dumps(stream))
    again.attach(ssc)
    assert again.latest_offset(None, START_S * 1000 + 1000) == taken
    again.recall(SourceRange(None, taken))
    assert not again.has_records(
        SourceRange(taken, again.latest_offset(taken, START_S * 1000 + 2000))
    )
