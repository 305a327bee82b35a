"""Which RDD checkpoints are kept, made again and deleted; and how far inputs keep their records."""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Sequence
from typing import Any, cast

import pytest

from penstock.checkpoint.rdd_marks import RddMark, RddMarks
from penstock.errors import RecoveryMismatchError, StorageError, StreamingError
from penstock.storage import open_storage
from penstock.streaming.core.base import BaseDStream
from penstock.streaming.core.operators import Operator
from penstock.streaming.core.rdd_retention import needed_after
from penstock.streaming.state.state_checkpoint_data import StateCheckpointData

COUNTS = Operator("counts", "updateStateByKey")


class Place:
    """Stands for RddCheckpoints; an RDD is the name of its file."""

    def __init__(self, url: str) -> None:
        self.marks = RddMarks(open_storage(url))
        self.files: set[str] = set()
        self.broken = False
        self.may_delete = True

    def write(self, rdd: str, kind: str, shape: dict[str, int]) -> RddMark:
        if self.broken:
            raise StorageError("as ordered", operation="write")
        self.files.add(rdd)
        return RddMark(kind, shape, rdd, (1,))

    def load(self, mark: RddMark) -> str:
        assert mark.file in self.files
        return mark.file

    def delete(self, file: str) -> None:
        if self.broken:
            raise StorageError("as ordered", operation="delete")
        self.files.remove(file)


class Run:
    """A stream's checkpoint data over a place that outlives it."""

    def __init__(
        self,
        place: Place,
        done_ms: int = 0,
        operator: Operator = COUNTS,
        shape: dict[str, int] | None = None,
        aligned: bool = True,
        planned_ms: int | None = None,
    ) -> None:
        self.data = StateCheckpointData(operator, shape or {})
        self.data.open(cast("Any", place))
        self.restart_ms, self.restored = self.data.restore(
            done_ms,
            1_000_000 if planned_ms is None else planned_ms,
            is_aligned=lambda _: aligned,
            initial=lambda: None,
        )

    def batch(self, time_ms: int, newest_ms: int | None = None) -> None:
        """Have an RDD checkpoint of a batch, up to the point where it is committed."""
        self.data.expect(time_ms, cast("Any", f"rdd-{time_ms}"))
        self.data.update(time_ms, lambda: newest_ms or time_ms)

    def finish(self, done_ms: int) -> None:
        self.data.cleanup(done_ms, done_ms)


@pytest.fixture
def place(tmp_path: Any) -> Place:
    return Place(str(tmp_path))


def test_a_new_operator_begins_where_batches_do(place: Place) -> None:
    run = Run(place, done_ms=3000)
    assert (run.restart_ms, run.restored) == (3000, {})
    again = Run(place, done_ms=9000)
    assert (again.restart_ms, again.restored) == (3000, {})


def test_state_goes_on_from_the_newest_checkpoint_that_is_done(place: Place) -> None:
    run = Run(place)
    for time_ms in (2000, 4000, 6000):
        run.batch(time_ms)
    again = Run(place, done_ms=5000)
    assert again.restart_ms == 4000
    assert again.restored == {4000: "rdd-4000", 6000: "rdd-6000"}


def test_a_checkpoint_is_given_up_when_a_newer_one_is_done(place: Place) -> None:
    run = Run(place)
    run.batch(2000)
    run.batch(4000)
    run.finish(3000)
    assert place.files == {"rdd-2000", "rdd-4000"}
    assert run.data.restart_ms(3000, 3000) == 2000
    run.finish(4000)
    assert place.files == {"rdd-4000"}
    assert place.marks.times_ms("counts") == [4000]


def test_files_stay_while_jobs_run_that_started_before_the_newer_ones(place: Place) -> None:
    run = Run(place)
    run.batch(2000)
    run.batch(4000, newest_ms=7000)
    run.finish(6000)
    assert place.files == {"rdd-2000", "rdd-4000"}
    assert run.data.restart_ms(6000, 6000) == 2000
    run.finish(7000)
    assert place.files == {"rdd-4000"}


def test_what_windows_look_back_to_stays(place: Place) -> None:
    run = Run(place)
    for time_ms in (2000, 4000, 6000):
        run.batch(time_ms)
    run.data.cleanup(6000, 4500)
    assert place.files == {"rdd-4000", "rdd-6000"}


def test_only_what_is_due_up_to_the_batch_is_written(place: Place) -> None:
    run = Run(place)
    run.data.expect(4000, cast("Any", "rdd-4000"))
    run.data.expect(2000, cast("Any", "rdd-2000"))
    run.data.update(3000, lambda: 4000)
    assert run.data.currentCheckpointFiles == {2000: "rdd-2000"}
    run.data.update(4000, lambda: 4000)
    assert run.data.currentCheckpointFiles == {2000: "rdd-2000", 4000: "rdd-4000"}


def test_the_first_rdd_in_each_interval_is_due(place: Place) -> None:
    run = Run(place)

    def due(time_ms: int) -> bool:
        return run.data.is_due(time_ms, 1000, 2000)

    assert [due(time_ms) for time_ms in (1500, 2000, 2999, 3000, 9000)] == [False] * 3 + [True] * 2
    run.data.expect(3500, cast("Any", "rdd"))  # ticks before it were left out
    assert [due(time_ms) for time_ms in (4000, 4500, 5000)] == [False, False, True]


def test_what_could_not_be_made_durable_is_not_tried_again(place: Place) -> None:
    run = Run(place)
    place.broken = True
    with pytest.raises(StorageError):
        run.batch(2000)
    place.broken = False
    run.data.update(3000, lambda: 3000)
    assert run.data.currentCheckpointFiles == {}
    assert run.data.is_due(4000, 0, 2000)


def test_a_file_that_two_batches_share_goes_with_the_second(place: Place) -> None:
    run = Run(place)
    run.data.expect(2000, cast("Any", "rdd"))
    run.data.expect(4000, cast("Any", "rdd"))
    run.data.update(4000, lambda: 4000)
    run.finish(4000)
    assert place.files == {"rdd"}
    run.batch(6000)
    run.finish(6000)
    assert place.files == {"rdd-6000"}


def test_state_of_another_kind_is_refused(place: Place) -> None:
    Run(place)
    with pytest.raises(RecoveryMismatchError, match="belongs to updateStateByKey"):
        Run(place, operator=Operator("counts", "reduceByKeyAndWindow"))


def test_batches_before_the_oldest_state_are_refused(place: Place) -> None:
    Run(place, done_ms=3000)
    with pytest.raises(RecoveryMismatchError, match="counts"):
        Run(place, done_ms=2000)


@pytest.mark.parametrize("change", [{"shape": {"windowMs": 6000}}, {"aligned": False}])
def test_windows_that_changed_begin_anew(
    place: Place, change: Any, caplog: pytest.LogCaptureFixture
) -> None:
    Run(place, shape={"windowMs": 5000}).batch(2000)
    usual = {"shape": {"windowMs": 5000}, **change}
    again = Run(place, done_ms=2000, **usual)
    assert (again.restart_ms, again.restored) == (2000, {})
    assert "operator counts changed" in caplog.text
    assert Run(place, done_ms=4000, **usual).restart_ms == 2000


def test_a_graph_checkpoint_holds_the_operator_alone(place: Place) -> None:
    run = Run(place)
    run.batch(2000)
    copy = pickle.loads(pickle.dumps(run.data))
    assert copy.currentCheckpointFiles == {}
    with pytest.raises(StreamingError, match="no location"):
        copy.restore(2000, 2000, is_aligned=bool, initial=lambda: None)
    copy.open(place)
    assert copy.restore(2000, 2000, is_aligned=bool, initial=lambda: None) == (
        2000,
        {2000: "rdd-2000"},
    )


def test_log_messages(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.streaming.core.checkpoint_data")
    run = Run(place)
    run.batch(2000)
    run.finish(1000)
    run.batch(4000)
    run.finish(4000)
    run.batch(8000)
    place.broken = True
    run.finish(8000)
    Run(place, done_ms=8000)
    messages = [(r.levelname, r.getMessage()) for r in caplog.records]
    assert messages == [
        ("DEBUG", "Current checkpoint files:\nrdd-2000"),
        ("DEBUG", "Nothing to delete"),
        ("DEBUG", "Current checkpoint files:\nrdd-2000\nrdd-4000"),
        ("DEBUG", "Files to delete:\nrdd-2000"),
        ("INFO", "Deleted checkpoint file 'rdd-2000' for time 2000 ms"),
        ("DEBUG", "Current checkpoint files:\nrdd-4000\nrdd-8000"),
        ("DEBUG", "Files to delete:\nrdd-4000"),
        (
            "WARNING",
            "Error deleting old checkpoint file 'rdd-4000' for time 4000 ms",
        ),
        (
            "INFO",
            "Restoring checkpointed RDD for time 8000 ms from file 'rdd-8000'",
        ),
    ]


class Stream:
    """A stream as the look back sees it: windows over parents, or state from a time on."""

    def __init__(
        self, *parents: Stream, window_ms: int = 0, own_ms: int = 0, state_ms: int | None = None
    ) -> None:
        self.parents = parents
        self._window_ms = window_ms
        self._own_ms = own_ms
        self._state_ms = state_ms

    def needed_after(self, done_ms: int) -> int:
        return done_ms - self._own_ms

    def parents_needed_after(self, after_ms: int, done_ms: int) -> int:
        begin_ms = after_ms if self._state_ms is None else min(after_ms, self._state_ms)
        return begin_ms - self._window_ms


def look_back(done_ms: int, streams: Sequence[Stream]) -> list[int]:
    found = needed_after(cast("list[BaseDStream]", streams), done_ms)
    return [found[cast("BaseDStream", stream)] for stream in streams]


def test_what_nothing_looks_back_to_is_done() -> None:
    source = Stream()
    assert look_back(9, [Stream(source), source]) == [9, 9]


def test_look_backs_add_up_along_the_way_and_the_longest_counts() -> None:
    source = Stream()
    window = Stream(source, window_ms=5)
    state = Stream(window, state_ms=14)
    assert look_back(20, [state, window, source]) == [20, 14, 9]
    slow = Stream(source, window_ms=20)
    assert look_back(20, [slow, state, window, source])[-1] == 0
    assert look_back(20, [Stream(state, window_ms=8), state, window, source]) == [20, 12, 12, 7]


def test_what_a_stream_remembers_itself_its_parents_keep_too() -> None:
    source = Stream()
    assert look_back(20, [Stream(source, own_ms=6), source]) == [14, 14]


def test_state_of_batches_that_the_offset_log_lacks_is_refused(place: Place) -> None:
    Run(place, planned_ms=-1)
    first = Run(place, planned_ms=-1)  # killed before its first batch was planned
    for time_ms in (1000, 2000):
        first.batch(time_ms)
    assert Run(place, 1000, planned_ms=2000).restart_ms == 1000  # 2000 runs again
    with pytest.raises(
        RecoveryMismatchError, match=r"is of 1970-01-01T00:00:02.*is of 1970-01-01T00:00:01"
    ) as caught:
        Run(place, 1000, planned_ms=1000)
    os.unlink(str(caught.value.hint).partition("file://")[2])
    assert Run(place, 1000, planned_ms=1000).restored == {1000: "rdd-1000"}
