"""A program that is recreated from its graph checkpoint, or rebuilt by changed code, goes on."""

from __future__ import annotations

import logging
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.checkpoint import CheckpointLocation, OffsetSeq
from penstock.errors import (
    BatchFailedError,
    CheckpointError,
    ConfigError,
    RecoveryMismatchError,
    StreamingError,
)
from penstock.storage import open_storage
from penstock.streaming import StreamingContext
from penstock.streaming.core.batch import SourceOffset, SourceRange
from penstock.streaming.inputs.input import InputDStream
from penstock.streaming.recovery.recreate import CheckpointReader
from penstock.testing.stepper import Stepper
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings

pytestmark = pytest.mark.spark

Create = Callable[[], StreamingContext]


def write_counts(time: Any, rdd: RDD[Any], folder: str) -> None:
    """A sink that replaces what it wrote for a batch; fails while there is a file "down"."""
    if (Path(folder) / "down").exists():
        raise OSError("sink is down")
    counts = "".join(f"{word} {count}\n" for word, count in sorted(rdd.collect()))
    (Path(folder) / f"batch-{round(time.timestamp() * 1000)}").write_text(counts)


class LogFile(InputDStream):
    """The lines of a file that grows, read by offsets and without a receiver."""

    def __init__(self, ssc: StreamingContext, path: Path, name: str) -> None:
        super().__init__(ssc, name)
        self.path = path

    def latest_offset(self, start: SourceOffset, time_ms: int) -> SourceOffset:
        return {self.name: {"lines": len(self.path.read_text().splitlines())}}

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        start, end = (self.partitions(o).get("lines", 0) for o in (wanted.start, wanted.end))
        lines = self.path.read_text().splitlines()[start:end]
        return self.ssc.sparkContext.parallelize(lines, 1)


class Place(Runs):
    """Log files and a sink of programs that run one after the other."""

    def __init__(self, sc: SparkContext, root: Path) -> None:
        super().__init__(sc, root / "checkpoint")
        self.root = root
        self.sink = root / "sink"
        self.sink.mkdir()
        self.setups = 0

    def program(
        self, *names: str, define: Callable[[StreamingContext], None] | None = None
    ) -> Create:
        """Return what makes a program that counts the lines of the logs of these names."""

        def setup() -> StreamingContext:
            self.setups += 1
            ssc = StreamingContext(self.sc, 1, clock=self.clock)
            for name in names:
                self.log(name).touch()
                pairs = LogFile(ssc, self.log(name), name).map(partial(pair, name)).reduceByKey(add)
                (self.sink / name).mkdir(exist_ok=True)
                pairs.foreachRDD(partial(write_counts, folder=str(self.sink / name)))
            if define is not None:
                define(ssc)
            return ssc

        return setup

    def log(self, name: str) -> Path:
        return self.root / f"{name}.log"

    def start(self, create: Create, recover: str = "graph") -> Stepper:
        if recover == "graph" and list(self.location.glob("checkpoint-*")):
            ssc = StreamingContext(str(self.location), clock=self.clock)
        else:
            ssc = StreamingContext.getOrCreate(str(self.location), create, recover)  # type: ignore[arg-type]
        return self.start_context(ssc)

    def feed(self, name: str, *lines: str) -> None:
        """Append lines to a log."""
        with self.log(name).open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def run(self, create: Create, recover: str, *lines: tuple[str, str]) -> None:
        """Run a program for one batch a line, and stop it."""
        stepper = self.start(create, recover)
        for name, line in lines:
            self.feed(name, line)
            stepper.step()
        self.stop()

    def seen(self, name: str) -> Counter[str]:
        """Return what the sink holds of a log."""
        counts: Counter[str] = Counter()
        for file in (self.sink / name).glob("batch-*"):
            for line in file.read_text().splitlines():
                word, count = line.split()
                counts[word] += int(count)
        return counts

    def batches(self, name: str) -> list[str]:
        """Return what the sink holds of a log, batch by batch."""
        return [f.read_text() for f in sorted((self.sink / name).glob("batch-*"))]

    def graph_checkpoints(self) -> list[Path]:
        return sorted(self.location.glob("checkpoint-*"))


def pair(name: str, line: str) -> tuple[str, int]:
    return f"{name}:{line}", 1


def times_ms(files: list[Path]) -> list[int]:
    return [int(file.name.partition("-")[2]) for file in files]


@pytest.fixture
def place(sc: SparkContext, tmp_path: Path) -> Iterator[Place]:
    place = Place(sc, tmp_path)
    yield place
    place.stop()


@pytest.fixture
def each_batch(sc: SparkContext) -> Iterator[None]:
    """Have graph checkpoints written with each batch."""
    with spark_settings(sc, {"spark.penstock.graphCheckpointInterval": "0"}):
        yield


# -- recover="graph" --


def test_two_restarts_give_what_one_uninterrupted_run_gives(
    sc: SparkContext, tmp_path: Path
) -> None:
    words = ["x", "y", "x", "z"]
    outputs = []
    for folder, runs in (("whole", [4]), ("cut", [1, 1, 2])):
        (tmp_path / folder).mkdir()
        place = Place(sc, tmp_path / folder)
        rest = list(words)
        for count in runs:
            place.run(place.program("a"), "graph", *(("a", rest.pop(0)) for _ in range(count)))
        assert place.setups == 1
        assert place.seen("a") == {"a:x": 2, "a:y": 1, "a:z": 1}
        outputs.append([text for text in place.batches("a") if text])
    assert outputs[0] == outputs[1]


def test_interval_remember_inputs_and_outputs_come_from_the_checkpoint(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = place.program("a", "b")

    def setup() -> StreamingContext:
        ssc = create()
        ssc.remember(7)
        return ssc

    place.run(setup, "graph", ("a", "x"))
    monkeypatch.chdir(place.root)
    recreated = StreamingContext("checkpoint", clock=place.clock)
    assert recreated.graph.batch_interval_ms == 1000
    assert [i.name for i in recreated.graph.inputs] == ["a", "b"]
    assert [o.name for o in recreated.graph.outputs] == ["foreachRDD-0", "foreachRDD-1"]
    with pytest.raises(StreamingError, match="Remember duration already set as 7000 ms"):
        recreated.remember(9)
    recreated.start()
    assert all(i.remember_ms == 7000 for i in recreated.graph.inputs)
    recreated.stop(stopSparkContext=False)


@pytest.mark.usefixtures("each_batch")
def test_a_checkpoint_tells_what_it_was_taken_of(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"), ("a", "y"))
    read = CheckpointReader(open_storage(place.location)).read()
    assert read is not None
    assert (read.master, read.framework) == ("local[4]", "penstock tests")
    assert read.checkpoint_time_ms == place.clock.time_ms()
    assert (read.checkpoint_dir, read.checkpoint_interval_ms) == (str(place.location), 1000)
    assert read.pending_times == ()
    assert ("spark.sql.shuffle.partitions", "2") in read.conf


def test_the_graph_is_written_at_start_and_then_once_a_minute(place: Place) -> None:
    start_ms = place.clock.time_ms()
    stepper = place.start(place.program("a"))
    stepper.step(2)
    place.clock.advance(57_000)
    stepper.wait_completed(3)
    stepper.step(3)
    place.stop()
    assert times_ms(place.graph_checkpoints()) == [start_ms, start_ms + 60_000]


def test_a_program_that_is_killed_before_its_first_batch_comes_back(place: Place) -> None:
    place.start(place.program("a"))
    place.stop()
    assert len(place.graph_checkpoints()) == 1
    place.run(place.program(), "graph", ("a", "x"))
    assert place.setups == 1
    assert place.seen("a") == {"a:x": 1}


@pytest.mark.usefixtures("each_batch")
def test_the_batch_that_failed_is_pending_and_runs_again(place: Place) -> None:
    stepper = place.start(place.program("a"))
    place.feed("a", "x")
    stepper.step()
    (place.sink / "a" / "down").touch()
    place.feed("a", "y")
    with pytest.raises(BatchFailedError):
        stepper.step()
    failed_ms = place.clock.time_ms()
    place.stop()
    read = CheckpointReader(open_storage(place.location)).read()
    assert read is not None
    assert read.pending_times == (failed_ms,)

    (place.sink / "a" / "down").unlink()
    again = place.start(place.program("a"))
    again.wait_completed(1)
    assert [info.batch_time_ms for info in again.completed] == [failed_ms]
    place.stop()
    assert place.seen("a") == {"a:x": 1, "a:y": 1}


@pytest.mark.usefixtures("each_batch")
def test_an_older_checkpoint_gives_the_same_results(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.run(place.program("a"), "graph", *(("a", word) for word in "xyz"))
    files = place.graph_checkpoints()
    assert len(files) == 4  # of the start and of each batch
    for newer in files[1:]:
        newer.write_bytes(newer.read_bytes()[:-20])
    caplog.set_level(logging.WARNING)
    place.run(place.program("a"), "graph", ("a", "x"))
    assert caplog.text.count("Error reading checkpoint from file") == 3
    assert place.setups == 1
    assert place.seen("a") == {"a:x": 2, "a:y": 1, "a:z": 1}


def test_a_damaged_directory_raises_and_the_program_can_still_go_on(place: Place) -> None:
    create = place.program("a")
    place.run(create, "graph", ("a", "x"))
    for file in place.graph_checkpoints():
        file.write_bytes(b"")
    with pytest.raises(CheckpointError, match="Failed to read checkpoint from directory"):
        StreamingContext.getOrCreate(str(place.location), create)
    assert place.setups == 1
    place.run(create, "program", ("a", "y"))
    assert place.seen("a") == {"a:x": 1, "a:y": 1}


@pytest.mark.parametrize("exists", [True, False])
def test_no_checkpoint_to_recreate_a_context_from(tmp_path: Path, exists: bool) -> None:
    directory = tmp_path / "ck"
    if exists:
        directory.mkdir()
    with pytest.raises(CheckpointError, match="no graph checkpoint exists in directory"):
        StreamingContext(str(directory))
    assert directory.exists() == exists


@pytest.mark.parametrize("second", [{"fs.defaultFS": "hdfs://nn:9000"}, 5, 0])
def test_a_path_takes_no_second_argument(tmp_path: Path, second: Any) -> None:
    """Neither a hadoopConf, as in Scala, nor a batch interval, which is the checkpoint's."""
    with pytest.raises(ConfigError, match="takes the batch interval from the checkpoint") as raised:
        StreamingContext(str(tmp_path), second)
    assert "hdfs" not in str(raised.value)


def test_get_or_create_calls_setup_when_there_is_nothing(place: Place) -> None:
    ssc = StreamingContext.getOrCreate(str(place.location), place.program("a"))
    assert place.setups == 1
    assert StreamingContext.getActiveOrCreate(str(place.location), place.program("a")) is not ssc
    ssc.start()
    assert StreamingContext.getActiveOrCreate(str(place.location), place.program("a")) is ssc
    ssc.stop(stopSparkContext=False)
    assert place.setups == 2


def test_get_or_create_recreates_without_setup(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    ssc = StreamingContext.getOrCreate(str(place.location), pytest.fail)
    assert ssc.sparkContext is place.sc
    assert ssc.graph.batch_interval_ms == 1000


def test_wrong_way_to_recover(place: Place) -> None:
    with pytest.raises(ConfigError, match="recover is 'code'"):
        StreamingContext.getOrCreate(str(place.location), pytest.fail, recover="code")  # type: ignore[arg-type]


def test_setup_that_returns_no_context(place: Place) -> None:
    with pytest.raises(ConfigError, match=r"setupFunc returned None.*return ssc"):
        StreamingContext.getOrCreate(str(place.location), lambda: None)  # type: ignore[arg-type, return-value]


def test_a_recreated_context_can_be_given_another_location(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    other = place.root / "other"
    shutil.copytree(place.location, other, ignore=shutil.ignore_patterns("offsets", "commits"))
    ssc = StreamingContext(str(place.location), clock=place.clock)
    ssc.checkpoint(str(other))
    stepper = Stepper(ssc, place.clock)
    (other / "checkpoint-1").write_bytes(b"of another run")
    ssc.start()
    stepper.step()
    ssc.stop(stopSparkContext=False)
    assert len(list(other.glob("checkpoint-*"))) == 1


def new_input(ssc: StreamingContext) -> None:
    ssc.tailStream("/none", name="new")


def new_output(ssc: StreamingContext) -> None:
    ssc.graph.inputs[0].pprint()


def new_stream(ssc: StreamingContext) -> None:
    ssc.graph.inputs[0].count()


@pytest.mark.parametrize("extend", [new_input, new_output, new_stream])
def test_a_recreated_context_takes_nothing_new(
    place: Place, extend: Callable[[StreamingContext], None]
) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    ssc = StreamingContext(str(place.location), clock=place.clock)
    with pytest.raises(StreamingError, match=r"read from the graph checkpoint.*recover='program'"):
        extend(ssc)


def test_a_location_that_was_moved_goes_on_where_it_is_now(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    old, place.location = place.location, place.root / "moved"
    old.rename(place.location)
    place.run(place.program("a"), "graph", ("a", "y"))
    assert not old.exists()
    assert place.setups == 1
    assert place.seen("a") == {"a:x": 1, "a:y": 1}


def test_a_location_that_others_can_write_is_refused_at_start(place: Place) -> None:
    create = place.program("a")
    place.location.mkdir()
    place.location.chmod(0o777)
    with pytest.raises(ConfigError, match="may be written by others"):
        place.start(create)
    place.run(create, "program", ("a", "x"))
    assert place.seen("a") == {"a:x": 1}


def test_a_compression_that_cannot_be_had_is_refused_at_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    conf = place.sc.getConf().set("spark.io.compression.codec", "lzf")
    monkeypatch.setattr(place.sc, "getConf", lambda: conf)
    with pytest.raises(ConfigError, match=r"spark\.io\.compression\.codec is 'lzf'"):
        place.start(place.program("a"))


# -- recover="program" --


def test_inputs_are_reordered_and_added(place: Place) -> None:
    place.run(place.program("a", "b"), "program", ("a", "x"), ("b", "x"))
    place.run(place.program("b", "a"), "program", ("b", "y"), ("a", "y"))
    place.log("c").write_text("x\n")  # a new input starts at its beginning
    place.run(place.program("c", "b", "a"), "program", ("a", "z"), ("c", "y"), ("b", "z"))
    place.run(place.program("a", "b", "c"), "program", ("a", "w"))
    assert place.setups == 4
    assert place.seen("a") == {"a:x": 1, "a:y": 1, "a:z": 1, "a:w": 1}
    assert place.seen("b") == {"b:x": 1, "b:y": 1, "b:z": 1}
    assert place.seen("c") == {"c:x": 1, "c:y": 1}


def test_a_batch_that_was_cut_off_runs_again_in_the_changed_program(place: Place) -> None:
    stepper = place.start(place.program("a", "b"), "program")
    (place.sink / "b" / "down").touch()
    place.feed("a", "x")
    place.feed("b", "x")
    with pytest.raises(BatchFailedError):
        stepper.step()
    place.stop()
    (place.sink / "b" / "down").unlink()

    place.log("c").write_text("x\n")
    again = place.start(place.program("c", "b", "a"), "program")
    again.wait_completed(1)
    assert [info.batch_id for info in again.completed] == [0]
    assert place.seen("c") == {}  # the batch was planned without it
    place.feed("c", "y")
    again.step()
    place.stop()
    assert [place.seen(name) for name in "abc"] == [{"a:x": 1}, {"b:x": 1}, {"c:x": 1, "c:y": 1}]


def test_a_missing_input_is_refused(place: Place) -> None:
    place.run(place.program("a", "b"), "program", ("a", "x"))
    with pytest.raises(RecoveryMismatchError, match="input 'b', which is not in the program"):
        place.start(place.program("a"), "program")
    place.stop()
    place.run(place.program("b", "a"), "program", ("b", "y"))
    assert place.seen("b") == {"b:y": 1}


def with_operator(name: str, kind: str = "updateStateByKey") -> Callable[[StreamingContext], None]:
    def define(ssc: StreamingContext) -> None:
        ssc.graph.operators.add(kind, name)

    return define


@pytest.mark.parametrize("recover", ["graph", "program"])
def test_a_renamed_or_changed_operator_is_refused(place: Place, recover: str) -> None:
    place.run(place.program("a", define=with_operator("counts")), recover, ("a", "x"))
    for file in place.graph_checkpoints():
        file.unlink()
    for define, message in (
        (with_operator("renamed"), "'counts', which is not in the program"),
        (with_operator("counts", "reduceByKeyAndWindow"), "is a reduceByKeyAndWindow now"),
    ):
        with pytest.raises(RecoveryMismatchError, match=message):
            place.start(place.program("a", define=define), recover)
        place.stop()
    place.run(place.program("a", define=with_operator("counts")), recover, ("a", "y"))
    assert place.seen("a") == {"a:x": 1, "a:y": 1}


def test_old_code_cannot_come_back_after_the_program_was_rebuilt(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    assert place.graph_checkpoints()
    place.run(place.program("a", "b"), "program", ("b", "x"))
    assert not place.graph_checkpoints()
    place.run(place.program("a", "b"), "graph", ("b", "y"))
    assert place.setups == 3
    assert place.seen("b") == {"b:x": 1, "b:y": 1}
    place.run(place.program(), "graph", ("b", "z"))
    assert place.setups == 3


def test_the_graph_comes_back_when_the_rebuilt_program_planned_no_batch(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    before = place.graph_checkpoints()
    place.run(place.program("a", "b"), "program")
    assert place.graph_checkpoints() == before
    place.run(place.program(), "graph", ("a", "y"))
    assert place.setups == 2
    assert place.seen("a") == {"a:x": 1, "a:y": 1}


def test_a_program_that_is_refused_leaves_the_graph_checkpoints(place: Place) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    before = place.graph_checkpoints()
    with pytest.raises(RecoveryMismatchError):
        place.start(place.program("b"), "program")
    assert place.graph_checkpoints() == before


def test_a_new_context_on_an_old_location_replaces_its_graph_with_its_first_batch(
    place: Place,
) -> None:
    place.run(place.program("a"), "graph", ("a", "x"))
    before = place.graph_checkpoints()
    ssc = place.program("a", "b")()
    ssc.checkpoint(str(place.location))
    stepper = place.start_context(ssc)
    assert place.graph_checkpoints() == before
    stepper.step()
    place.stop()
    assert len(place.graph_checkpoints()) == 1
    place.run(place.program("a", "b"), "graph", ("b", "x"))
    place.run(place.program(), "graph", ("b", "y"))
    assert place.seen("b") == {"b:x": 1, "b:y": 1}


def test_a_location_of_another_engine_is_refused(place: Place) -> None:
    with CheckpointLocation(place.location) as location:
        location.plan(0, OffsetSeq(place.clock.time_ms(), sources=('{"a":{"lines":1}}',)))
        location.commit(0)
    with pytest.raises(RecoveryMismatchError, match="no DStream program of penstock has written"):
        place.start(place.program("a"), "program")
    place.stop()
