"""Windows: which times they hold, ticks that wait, what is kept for them, and restarts."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from operator import add, sub
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from penstock.errors import ConfigError, MissingBlockError, StreamingError
from penstock.streaming import BatchInfo, DStream, StreamingContext
from penstock.streaming.engine.ticks import DueTick, DueTicks
from penstock.streaming.inputs.queue_input import QueueInputDStream
from penstock.streaming.operations.window_times import Span, check_duration, step_window
from penstock.testing import ManualClock
from penstock.testing.stepper import Stepper
from tests.streaming.followed_file import Program, run_batches
from tests.streaming.settings import spark_settings
from tests.waiting import WAIT_S, eventually


def test_a_window_moves_by_what_left_and_what_entered() -> None:
    step = step_window(8_000, 10_000, 5_000)
    assert step.left == Span(3_000, 5_000)
    assert step.entered == Span(8_000, 10_000)


def test_after_a_long_pause_all_of_the_window_before_has_left() -> None:
    step = step_window(8_000, 99_000, 5_000)
    assert step.left == Span(3_000, 8_000)
    assert step.entered == Span(94_000, 99_000)


@pytest.mark.parametrize(("seconds", "duration_ms"), [(2, 2000), (0.6, 600), (3.0, 3000)])
def test_durations(seconds: float, duration_ms: int) -> None:
    assert check_duration("windowDuration", seconds, 200) == duration_ms


@pytest.mark.parametrize("seconds", [0, -2, 0.3, "2", None, float("nan"), float("inf")])
def test_wrong_durations(seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"windowDuration must be multiple .*\(200 ms\)"):
        check_duration("windowDuration", seconds, 200)


def test_ticks_are_merged_into_the_latest_after_those_that_were_missed() -> None:
    due = DueTicks(merge=True)
    for time_ms in (1, 2, 3):
        due.add(time_ms, since_ms=time_ms)
    assert due.unknown_before_ms == 3
    due.add_missed([DueTick(2, since_ms=9, is_missed=True)])
    assert (due.unknown_before_ms, due.late_since_ms) == (None, 1)
    due.add(4, since_ms=4)
    assert due.take() == DueTick(2, since_ms=9, is_missed=True)
    assert due.unknown_before_ms == 4  # the third tick passed without a batch, too
    due.add_missed([])
    assert [due.take(), due.take()] == [DueTick(4, since_ms=1), None]


def test_ticks_that_may_not_be_merged_come_one_by_one() -> None:
    due = DueTicks(merge=False)
    for time_ms in (1, 2, 5):
        due.add(time_ms, since_ms=time_ms)
    assert (due.late_since_ms, due.unknown_before_ms) == (1, 1)
    due.add_missed([])
    assert [due.take(), due.unknown_before_ms, due.take()] == [DueTick(1, 1), 2, DueTick(2, 2)]
    assert due.unknown_before_ms == 5  # the clock was set forward between the two
    due.add_missed([DueTick(4, 9, is_missed=True)])
    assert [due.take(), due.take(), due.take()] == [DueTick(4, 9, True), DueTick(5, 5), None]


@pytest.fixture
def program(sc: SparkContext, tmp_path: Path) -> Iterator[Program]:
    program = Program(sc, tmp_path)
    yield program
    program.stop()


@pytest.mark.spark
def test_a_restart_gives_windows_their_earlier_batches_and_their_slides(program: Program) -> None:
    def windows(lines: DStream) -> DStream:
        return lines.window(3, 2)

    run_batches(program, program.start(windows), "a", "b", "c")
    program.stop()
    run_batches(program, program.start(windows), "d", "e", "f")
    assert program.seen == [
        (1002, ["a", "b"]),
        (1004, ["b", "c", "d"]),
        (1006, ["d", "e", "f"]),
    ]


@pytest.mark.spark
def test_an_incremental_window_goes_on_after_a_restart(program: Program) -> None:
    def counts(lines: DStream) -> DStream:
        return lines.countByWindow(5, 1).map(str)

    run_batches(program, program.start(counts), "a", "b", "c")
    program.stop()
    stepper = program.start(counts)
    run_batches(program, stepper, "d", "e", "f")
    stepper.step()
    assert [records for _, records in program.seen] == [[n] for n in "1234554"]


def counted(lines: DStream) -> DStream:
    """Return the lines of each window with their numbers, made with an inverse function."""
    pairs = lines.map(lambda line: (line, 1))
    counts = pairs.reduceByKeyAndWindow(add, sub, 5, 1, 1, lambda pair: pair[1] > 0)
    return counts.map(lambda pair: f"{pair[0]}{pair[1]}")


@pytest.mark.spark
def test_the_slides_of_a_downtime_are_made_where_windows_hold_records(program: Program) -> None:
    def windows(lines: DStream) -> DStream:
        return lines.window(4, 2)

    run_batches(program, program.start(windows), "a", "b", "c")
    program.stop()
    program.clock.advance(3_600_000)
    stepper = program.start(windows)
    stepper.wait_completed(2)
    program.feed("d")
    stepper.step()
    stepper.step()
    assert program.seen == [
        (1002, ["a", "b"]),
        (1004, ["a", "b", "c"]),
        (1006, ["c"]),
        (4604, ["d"]),
    ]
    plain = [program.offsets(batch_id)[0] for batch_id in range(6)]
    assert plain[2] == plain[3] == plain[4] != plain[5]


@pytest.mark.spark
@pytest.mark.parametrize("downtime_s", [1, 4, 3600])
def test_windows_with_an_inverse_go_on_over_a_downtime(program: Program, downtime_s: int) -> None:
    run_batches(program, program.start(counted), "a", "b", "a")
    program.stop()
    program.clock.advance(downtime_s * 1000)
    program.start(counted)
    program.feed("c")
    program.clock.advance(1000)
    first = 1004 + downtime_s
    windows = {
        1001: ["a1"],
        1002: ["a1", "b1"],
        1003: ["a2", "b1"],
        1004: ["a2", "b1"],
        1005: ["a2", "b1"],
        1006: ["a1", "b1"],
        1007: ["a1"],
        1008: [],  # the last one that says something new
    }
    expected = {time: records for time, records in windows.items() if time < first}
    expected[first] = sorted(["c1", *windows.get(first, [])])
    assert eventually(lambda: dict(program.seen) == expected), program.seen


@pytest.mark.spark
def test_state_of_windows_sees_each_of_them_over_a_downtime(program: Program) -> None:
    def states(lines: DStream) -> DStream:
        pairs = lines.window(2, 1).map(lambda line: (line, 1))
        return pairs.updateStateByKey(lambda new, old: (old or 0) + len(new), 1).map(str)

    run_batches(program, program.start(states), "a", "b")
    program.stop()
    program.clock.advance(100_000)
    stepper = program.start(states)
    stepper.wait_completed(1)
    run_batches(program, stepper, "c", "d")
    expected = ["('a', 2)", "('b', 2)", "('c', 2)", "('d', 1)"]
    assert [time for time, _ in program.seen] == [1001, 1002, 1003, 1103, 1104]
    assert program.seen[-1][1] == expected


@pytest.fixture
def retain_one(sc: SparkContext) -> Iterator[None]:
    """Have the logs keep no batch longer than windows and recovery need it."""
    with spark_settings(sc, {"spark.sql.streaming.minBatchesToRetain": "1"}):
        yield


@pytest.mark.spark
@pytest.mark.usefixtures("retain_one")
def test_batches_are_kept_as_long_as_a_window_needs_them_and_no_longer(program: Program) -> None:
    stepper = program.start(lambda lines: lines.window(2))
    run_batches(program, stepper, *"abc")
    before = program.blocks()
    assert len(before) == 3
    run_batches(program, stepper, *"defgh")
    assert program.seen[-1] == (1008, ["g", "h"])
    # Blocks live as long as their entries: these go by what was released when a batch was planned.
    assert eventually(lambda: not before[0].exists() and not before[1].exists())
    assert before[2].exists()


@pytest.mark.spark
@pytest.mark.usefixtures("retain_one")
def test_a_wider_window_after_a_restart_says_what_it_lacks(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    stepper = program.start(lambda lines: lines)
    run_batches(program, stepper, *"abcdef")
    assert eventually(lambda: len(program.blocks()) <= 4)
    program.stop()
    with caplog.at_level(logging.WARNING, logger="penstock.streaming"):
        run_batches(program, program.start(lambda lines: lines.window(10)), "e")
    assert "Windows need batches since 1970-01-01T00:16:35.000Z, and" in caplog.text
    assert "e" in program.seen[-1][1]
    assert "a" not in program.seen[-1][1]


@pytest.mark.spark
def test_blocks_that_a_window_should_find_and_does_not_stop_the_start(program: Program) -> None:
    def windows(lines: DStream) -> DStream:
        return lines.window(10)

    run_batches(program, program.start(windows), *"abc")
    program.stop()
    program.blocks()[0].unlink()
    with pytest.raises(MissingBlockError, match="lines"):
        program.start(windows)


@pytest.mark.spark
@pytest.mark.usefixtures("retain_one")
def test_logs_that_a_window_needs_are_kept(program: Program) -> None:
    stepper = program.start(lambda lines: lines.window(3))
    stepper.step(8)
    offsets = program.location / "offsets"
    kept = {int(path.name) for path in offsets.iterdir() if path.name.isdigit()}
    assert {3, 4, 5, 6, 7} <= kept
    assert eventually(lambda: not (offsets / "0").exists())


@pytest.mark.spark
def test_a_program_whose_batch_interval_changed_goes_on_with_its_slides(program: Program) -> None:
    def windows(lines: DStream) -> DStream:
        return lines.window(6, 6)

    run_batches(program, program.start(windows), "a", "b")
    program.stop()
    run_batches(program, program.start(windows, interval=3), "c", "d")
    program.stop()
    run_batches(program, program.start(windows, interval=1.5), "e", "f", "g")
    assert program.seen == [(1006, ["a", "b", "c", "d"]), (1012, ["e", "f", "g"])]


def at(batch: BatchInfo) -> int:
    return batch.batch_time_ms // 1000


@pytest.mark.spark
def test_a_batch_that_lasts_an_hour_leaves_no_queue_of_empty_windows(program: Program) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait(rdd: Any) -> Any:
        begun.set()
        assert go_on.wait(WAIT_S)
        return rdd

    def windows(lines: DStream) -> DStream:
        return lines.transform(wait).window(4, 2)

    stepper = program.start(windows)
    run_batches(program, stepper, "a")
    program.clock.advance(1000)
    assert begun.wait(WAIT_S)
    program.clock.advance(3_600_000)
    go_on.set()
    assert eventually(lambda: stepper.completed[-1:] and at(stepper.completed[-1]) == 4602)
    assert len(stepper.completed) < 10
    program.feed("b")
    stepper.step(2)
    assert program.seen == [(1002, ["a"]), (1004, ["a"]), (4602, []), (4604, ["b"])]


YEAR_S = 31_536_000


@pytest.mark.spark
def test_windows_slide_on_when_the_clock_was_a_year_ahead_once(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    def windows(lines: DStream) -> DStream:
        return lines.window(4, 2)

    stepper = program.start(windows)
    run_batches(program, stepper, "a", "b", "c")
    program.clock.set_wall(YEAR_S * 1000)
    program.feed("d")
    program.clock.advance(1000)
    stepper.wait_completed(6)  # of the year only what holds lines has batches
    run_batches(program, stepper, "e")
    program.stop()
    program.clock.set_wall(-YEAR_S * 1000)
    assert "ahead of the clock of this machine" not in caplog.text
    run_batches(program, program.start(windows), "f", "g")
    assert "ahead of the clock of this machine" in caplog.text
    later = 1004 + YEAR_S
    assert program.seen == [
        (1002, ["a", "b"]),
        (1004, ["a", "b", "c"]),
        (1006, ["c"]),
        (later, ["d"]),
        (later + 2, ["d", "e", "f"]),
    ]


@pytest.fixture
def ssc(sc: SparkContext) -> Iterator[StreamingContext]:
    ssc = StreamingContext(sc, 1, clock=ManualClock(1_000_000))
    yield ssc
    ssc.stop(stopSparkContext=False)


@pytest.mark.spark
def test_ticks_that_come_while_a_batch_runs_are_kept_if_windows_hold_records(
    ssc: StreamingContext,
) -> None:
    running, go_on = threading.Event(), threading.Event()
    seen: list[list[int]] = []

    def hold(rdd: Any) -> None:
        running.set()
        assert go_on.wait(WAIT_S)
        seen.append(sorted(rdd.collect()))

    source = ssc.queueStream([[1], [2], [3]])
    assert isinstance(source, QueueInputDStream)
    source.merges_ticks = True
    source.window(2).foreachRDD(hold)
    clock = ssc._clock
    assert isinstance(clock, ManualClock)
    stepper = Stepper(ssc, clock)
    ssc.start()
    clock.advance(1000)
    assert running.wait(WAIT_S)
    clock.advance(3000)
    go_on.set()
    stepper.wait_completed(3)
    stepper.step(2)
    assert seen == [[1], [1], [2], [2, 3], [3]]  # each in two windows
    times_ms = [info.batch_time_ms - 1_001_000 for info in stepper.completed]
    assert times_ms == [0, 1000, 3000, 4000, 5000]


@pytest.mark.spark
def test_a_batch_with_which_no_window_ends_is_done_at_once(ssc: StreamingContext) -> None:
    clock = ssc._clock
    assert isinstance(clock, ManualClock)
    seen: list[list[int]] = []
    ssc.queueStream([[1], [2], [3]]).window(3, 3).foreachRDD(lambda r: seen.append(r.collect()))
    stepper = Stepper(ssc, clock)
    ssc.start()
    infos = stepper.step(3)
    assert seen == [[1, 2, 3]]
    assert [info.failed for info in infos] == [False, False, False]


@pytest.mark.spark
def test_lineage_is_cut_and_old_rdd_checkpoints_go(ssc: StreamingContext, tmp_path: Path) -> None:
    clock = ssc._clock
    assert isinstance(clock, ManualClock)
    ssc.checkpoint(str(tmp_path))
    pairs = ssc.queueStream([[(1, n)] for n in range(12)])
    sums = pairs.reduceByKeyAndWindow(lambda a, b: a + b, lambda a, b: a - b, 5, 1)
    depths: list[int] = []
    sums.checkpoint(2).foreachRDD(
        lambda rdd: depths.append((rdd.collect(), len(rdd.toDebugString().splitlines()))[1])
    )
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(12)
    assert max(depths[10:]) == max(depths[6:10])
    written = list((tmp_path / "rdds").glob("*/rdd-*"))
    assert 1 <= len(written) <= 4


@pytest.mark.spark
def test_remember_and_slice(ssc: StreamingContext) -> None:
    clock = ssc._clock
    assert isinstance(clock, ManualClock)
    ssc.remember(3)
    with pytest.raises(StreamingError, match="already set"):
        ssc.remember(5)
    source = ssc.queueStream([[n] for n in range(6)])
    unused = source.map(str)
    source.foreachRDD(lambda rdd: None)
    with pytest.raises(StreamingError, match="not been initialized"):
        source.slice(1001, 1002)
    stepper = Stepper(ssc, clock)
    ssc.start()
    stepper.step(7)  # the last one is remembered by all until the next is planned

    def remembered() -> list[int]:
        return [record for rdd in source.slice(0, 2000) for record in rdd.collect()]

    assert eventually(lambda: remembered() == [3, 4, 5])
    with pytest.raises(StreamingError, match="not been initialized"):
        unused.slice(1001, 1002)


@pytest.mark.spark
@pytest.mark.parametrize("seconds", [0, -1, None, "3"])
def test_wrong_remember_duration(ssc: StreamingContext, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="remember duration"):
        ssc.remember(seconds)


@pytest.mark.spark
def test_checkpoint_interval_that_is_no_multiple_of_the_slide(ssc: StreamingContext) -> None:
    with pytest.raises(ConfigError, match="checkpoint interval must be multiple"):
        ssc.queueStream([[1]]).window(2, 2).checkpoint(3)


@pytest.mark.spark
def test_get_active_or_create(ssc: StreamingContext, tmp_path: Path) -> None:
    def setup() -> StreamingContext:
        ssc.queueStream([[1]]).foreachRDD(lambda rdd: None)
        return ssc

    def refuse() -> StreamingContext:
        raise AssertionError("there is an active context")

    made = StreamingContext.getActiveOrCreate(str(tmp_path), setup)
    made.start()
    assert made is ssc
    assert StreamingContext.getActiveOrCreate(str(tmp_path), refuse) is ssc
    assert (tmp_path / "metadata").exists()
    ssc.stop(stopSparkContext=False)
    other = StreamingContext(ssc.sparkContext, 1)
    assert StreamingContext.getActiveOrCreate(None, lambda: other) is other
