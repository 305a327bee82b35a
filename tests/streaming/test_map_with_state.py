"""mapWithState on a real Spark: its meaning against a model, failures, restarts, retention."""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.errors import (
    BatchFailedError,
    ConfigError,
    MissingStateError,
    RecoveryMismatchError,
    StreamingError,
)
from penstock.state import version_times
from penstock.state.state_file import open_file
from penstock.storage import open_storage
from penstock.streaming import DStream, State, StateSpec, StreamingContext
from penstock.testing.stepper import Stepper
from tests.state.helpers import Model, add_up
from tests.streaming.runs import Runs
from tests.streaming.settings import spark_settings
from tests.waiting import eventually

pytestmark = pytest.mark.spark

Batches = list[list[Any]]


class Program(Runs):
    """A program over a queue of batches."""

    def __init__(self, sc: SparkContext, location: Path) -> None:
        super().__init__(sc, location)
        self.seen: dict[str, list[list[Any]]] = {}

    def start(self, batches: Batches, define: Callable[[DStream], Any]) -> Stepper:
        """Run what ``define`` makes of the stream of the batches."""
        self.stop()
        # One partition each: records come in the order in which they stand.
        queue = [self.sc.parallelize(batch, 1) for batch in batches]
        return self.start_program(lambda ssc: define(ssc.queueStream(queue)))

    def collect(self, stream: DStream, name: str = "out") -> None:
        """Keep what the stream holds in each batch."""
        kept = self.seen.setdefault(name, [])
        stream.foreachRDD(lambda rdd: kept.append(rdd.collect()))

    def versions(self, operator: str = "mapWithState-0") -> list[int]:
        return version_times(open_storage(self.location / "state"), operator)

    def deltas(self) -> list[str]:
        return sorted(path.name for path in self.location.glob("state/*/*/*.delta"))


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Iterator[Program]:
    program = Program(sc, tmp_path / "checkpoint")
    yield program
    program.stop()


def running_sum(key: Any, value: int | None, state: State[int]) -> Any:
    if value is None:
        return (key, "gone", state.get())
    state.update(value + (state.get() if state.exists() else 0))
    return (key, state.get())


def by_key(pairs: list[Any]) -> dict[Any, list[Any]]:
    """Return what each key's records are, in order: keys lie in several partitions."""
    found: dict[Any, list[Any]] = {}
    for key, *rest in pairs:
        found.setdefault(key, []).append(rest)
    return found


# -- meaning --


@pytest.mark.parametrize("timeout", [None, 3])
def test_the_same_as_a_model(program: Program, timeout: float | None) -> None:
    chance = random.Random(timeout)
    keys = [*range(6), 1.0, True, "a", ("a", 1), None]
    batches = [
        [(chance.choice(keys), chance.randrange(-1, 4)) for _ in range(chance.choice((0, 3, 12)))]
        for _ in range(8)
    ]

    def define(pairs: DStream) -> None:
        mapped = pairs.mapWithState(add_up, timeout=timeout, numPartitions=3)
        program.collect(mapped)
        program.collect(mapped.stateSnapshots(), "snapshots")

    program.start(batches, define).step(len(batches) + 3)
    model = Model()
    batches += [[]] * 3
    for number, batch in enumerate(batches):
        time_ms = 1_001_000 + 1000 * number
        wanted = model.update(batch, time_ms, None if timeout is None else 3000)
        assert by_key(program.seen["out"][number]) == by_key(wanted)
        assert dict(program.seen["snapshots"][number]) == model.sums


def test_the_spec_of_spark_and_the_batch_time(program: Program) -> None:
    def first(time: datetime, key: str, value: int, state: State[int]) -> Any:
        state.update(value)
        return (key, round(time.timestamp())) if value > 1 else None

    spec = StateSpec.function(first).initialState([("x", 9)]).numPartitions(2).timeout(100)

    def define(pairs: DStream) -> None:
        mapped = pairs.mapWithState(spec, name="firsts")
        program.collect(mapped)
        program.collect(mapped.stateSnapshots(), "snapshots")

    program.start([[("a", 1), ("b", 2)]], define).step()
    assert program.seen["out"] == [[("b", 1001)]]
    assert dict(program.seen["snapshots"][0]) == {"x": 9, "a": 1, "b": 2}
    assert program.versions("firsts") == [0, 1_001_000]


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": "1"},
        {"timeout": float("nan")},
        {"numPartitions": 0},
        {"numPartitions": 1.5},
        {"initialState": 3},
        {"initialState": "ab"},
        {"name": "a/b"},
        {"spec": "f"},
    ],
    ids=str,
)
def test_wrong_arguments(sc: SparkContext, options: dict[str, Any]) -> None:
    pairs = StreamingContext(sc, 1).queueStream([[("a", 1)]])
    with pytest.raises(ConfigError):
        pairs.mapWithState(**{"spec": running_sum, **options})


def test_two_operators_of_one_name(sc: SparkContext) -> None:
    pairs = StreamingContext(sc, 1).queueStream([[("a", 1)]])
    assert pairs.mapWithState(running_sum).operator.name == "mapWithState-0"
    pairs.mapWithState(running_sum, name="sums")
    with pytest.raises(StreamingError, match="two operators are named 'sums'"):
        pairs.mapWithState(running_sum, name="sums")


def test_state_upon_state(program: Program) -> None:
    def define(pairs: DStream) -> None:
        sums = pairs.mapWithState(running_sum, name="sums")
        program.collect(sums.mapWithState(running_sum, name="sums-of-sums"))

    program.start([[("a", 1), ("a", 1)], [("a", 1)]], define).step(2)
    assert program.seen["out"] == [[("a", 1), ("a", 3)], [("a", 6)]]


def test_outputs_can_be_read_in_part_again_and_together(program: Program) -> None:
    def define(pairs: DStream) -> None:
        mapped = pairs.mapWithState(running_sum)
        mapped.foreachRDD(lambda rdd: rdd.take(1))
        program.collect(mapped, "one")
        program.collect(mapped.map(lambda pair: pair[1]).reduce(max), "other")

    program.start([[("a", 1), ("b", 2)], [("a", 5)]], define).step(2)
    assert [sorted(batch) for batch in program.seen["one"]] == [[("a", 1), ("b", 2)], [("a", 6)]]
    assert program.seen["other"] == [[2], [6]]


def test_windows_over_state_and_state_over_windows(program: Program) -> None:
    def define(pairs: DStream) -> None:
        program.collect(pairs.mapWithState(running_sum, name="a").window(2, 2), "window")
        program.collect(pairs.window(2, 2).mapWithState(running_sum, name="b"), "over")

    program.start([[("k", 1)], [("k", 2)], [("k", 3)], [("k", 4)]], define).step(4)
    assert program.seen["window"] == [[("k", 1), ("k", 3)], [("k", 6), ("k", 10)]]
    assert program.seen["over"] == [[("k", 1), ("k", 3)], [("k", 6), ("k", 10)]]
    assert [time_ms % 2000 for time_ms in program.versions("b")] == [0, 0]  # of its slides only


def test_batches_that_nobody_looks_at_are_counted(program: Program) -> None:
    def define(pairs: DStream) -> None:
        mapped = pairs.mapWithState(running_sum)
        program.collect(mapped.window(1, 3))

    program.start([[("k", 1)]] * 6, define).step(6)
    assert program.seen["out"] == [[("k", 3)], [("k", 6)]]


def test_batches_without_records_cost_a_version_only(program: Program, sc: SparkContext) -> None:
    def define(pairs: DStream) -> None:
        records = pairs.transform(lambda rdd: rdd if rdd.count() else sc.emptyRDD())
        program.collect(records.mapWithState(running_sum, timeout=2))

    stepper = program.start([[("a", 1)]], define)
    stepper.step(2)
    before = program.deltas()
    stepper.step()
    assert (program.deltas(), program.versions()[-1]) == (before, 1_003_000)
    stepper.step(2)
    assert program.seen["out"] == [[("a", 1)], [], [], [("a", "gone", 1)], []]


# -- failures and restarts --


def test_a_restart_goes_on_with_state_and_without_the_initial_one(program: Program) -> None:
    batches = [[("a", 1)], [("a", 2)], [("b", 1)], [("a", 3)]]

    def define(pairs: DStream) -> None:
        initial = program.sc.parallelize([("a", 10), ("b", 20)])
        program.collect(pairs.mapWithState(running_sum, initialState=initial))

    program.start(batches, define).step(2)
    program.start(batches, define).step(2)
    assert program.seen["out"] == [[("a", 11)], [("a", 13)], [("b", 21)], [("a", 16)]]


def test_a_function_that_raised_is_tried_again_before_the_next_batch(
    continuing: None, program: Program, tmp_path: Path
) -> None:
    broken = tmp_path / "broken"

    def define(pairs: DStream) -> None:
        def sum_or_fail(key: str, value: int, state: State[int]) -> Any:
            if value == 2 and broken.exists():
                raise ValueError("broken")
            return running_sum(key, value, state)

        program.collect(pairs.mapWithState(sum_or_fail))

    batches = [[("a", 1), ("b", 1)], [("a", 2), ("b", 1)], [("a", 3)]]
    broken.touch()
    stepper = program.start(batches, define)
    stepper.step()
    with pytest.raises(BatchFailedError, match="broken"):
        stepper.step()
    assert program.versions() == [1_001_000]
    broken.unlink()
    program.clock.advance(1000)
    seen = program.seen["out"]
    assert eventually(lambda: len(seen) == 2)
    program.start(batches, define).wait_completed(1)
    assert sorted(seen[0]) == [("a", 1), ("b", 1)]
    assert seen[1] == [("a", 6)]
    assert sorted(seen[2]) == [("a", 3), ("b", 2)]  # the one that failed, after the restart


def test_a_batch_whose_output_failed_gives_the_same_again(program: Program, tmp_path: Path) -> None:
    calls, broken = tmp_path / "calls", [True]

    def define(pairs: DStream) -> None:
        def by_chance(key: str, value: int, state: State[float]) -> Any:
            with calls.open("a") as file:
                file.write(f"{value}\n")
            state.update(random.random())
            return (key, state.get())

        def write(rdd: Any) -> None:
            program.seen.setdefault("written", []).append(rdd.collect())
            if broken[0] and len(program.seen["written"]) == 2:
                raise OSError("the sink is full")

        mapped = pairs.mapWithState(by_chance)
        mapped.foreachRDD(write)
        program.collect(mapped.stateSnapshots(), "snapshots")

    batches = [[("a", 1)], [("a", 2)], [("b", 3)]]
    stepper = program.start(batches, define)
    stepper.step()
    with pytest.raises(BatchFailedError, match="sink is full"):
        stepper.step()
    broken[0] = False
    again = program.start(batches, define)
    again.wait_completed(1)
    again.step()
    written = program.seen["written"]
    assert written[2] == written[1] != written[0]
    assert calls.read_text().split() == ["1", "2", "3"]
    assert program.seen["snapshots"][-2] == written[1]
    assert dict(program.seen["snapshots"][-1]) == dict(written[1] + written[3])


def test_windows_over_state_have_their_earlier_batches_after_a_restart(program: Program) -> None:
    def define(pairs: DStream) -> None:
        program.collect(pairs.mapWithState(running_sum).window(3))

    batches = [[("a", 1)]] * 5
    program.start(batches, define).step(3)
    program.start(batches, define).step(2)
    assert [sorted(total for _, total in batch) for batch in program.seen["out"]] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [2, 3, 4],
        [3, 4, 5],
    ]


def test_versions_and_files_are_retired_with_their_batches(program: Program) -> None:
    def define(pairs: DStream) -> None:
        mapped = pairs.mapWithState(running_sum, numPartitions=1)
        program.collect(mapped)

    batches = [[("a", 1)]] * 36
    program.start(batches, define).step(36)
    assert len(program.versions()) <= 4
    assert len(program.deltas()) < 2 * 16 + 4
    assert program.seen["out"][-1] == [("a", 36)]


# -- what is refused --


def test_another_number_of_partitions(program: Program) -> None:
    def define(partitions: int | None) -> Callable[[DStream], None]:
        return lambda pairs: program.collect(
            pairs.mapWithState(running_sum, numPartitions=partitions)
        )

    batches = [[("a", 1)], [("a", 1)]]
    program.start(batches, define(3)).step()
    with pytest.raises(RecoveryMismatchError, match="3 partitions, and the program requests 2"):
        program.start(batches, define(2))
    program.start(batches, define(None)).step()
    assert program.seen["out"] == [[("a", 1)], [("a", 2)]]


def test_state_of_an_earlier_time_than_the_commits(program: Program) -> None:
    def define(pairs: DStream) -> None:
        program.collect(pairs.mapWithState(running_sum))

    batches = [[("a", 1)]] * 3
    program.start(batches, define).step(2)
    program.stop()
    newest = max(program.location.glob("state/*/versions/*"))
    newest.unlink()
    with pytest.raises(MissingStateError, match="is missing, although that batch is committed"):
        program.start(batches, define)


def test_state_is_its_users_alone_under_any_umask(program: Program) -> None:
    def define(pairs: DStream) -> None:
        program.collect(pairs.mapWithState(running_sum))

    before = os.umask(0)
    try:
        program.start([[("a", 1)]] * 2, define).step(2)
        program.stop()
    finally:
        os.umask(before)
    state = program.location / "state"
    exposed = [path for path in (state, *state.rglob("*")) if path.stat().st_mode & 0o077]
    assert list(state.rglob("*.delta"))
    assert exposed == []


def test_a_location_that_others_can_write(program: Program) -> None:
    program.location.mkdir(mode=0o700)
    program.location.chmod(0o777)
    with pytest.raises(ConfigError, match="can be written by other users"):
        program.start([[("a", 1)]], lambda pairs: program.collect(pairs.mapWithState(running_sum)))


def test_a_wider_window_lacks_what_was_not_kept(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    def define(width: int) -> Callable[[DStream], None]:
        return lambda pairs: program.collect(pairs.mapWithState(running_sum).window(width))

    batches = [[("a", 1)]] * 9
    program.start(batches, define(1)).step(8)
    with caplog.at_level(logging.WARNING):
        program.start(batches, define(6)).step(1)
    assert "lack" in caplog.text
    assert program.seen["out"][-1][-1] == ("a", 9)


@pytest.mark.parametrize(
    ("setting", "codec"),
    [("zstd", "zstd"), ("org.apache.spark.io.SnappyCompressionCodec", "snappy"), ("lzf", "lz4")],
)
def test_files_are_compressed_as_spark_is_told(
    sc: SparkContext, program: Program, setting: str, codec: str
) -> None:
    with spark_settings(sc, {"spark.sql.streaming.stateStore.compression.codec": setting}):
        program.start(
            [[("a", 1)]], lambda pairs: program.collect(pairs.mapWithState(add_up))
        ).step()
        program.stop()
    storage = open_storage(program.location / "state")
    (path,) = [name for name in storage.find() if name.endswith(".delta")]
    assert open_file(storage, path, "delta").facts["codec"] == codec
