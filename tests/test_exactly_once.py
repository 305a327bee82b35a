"""What a sink's newest batch says of one that is to be written: the cases. Without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from penstock.checkpoint import OffsetSeq
from penstock.checkpoint.batch_plan import plan_of
from penstock.errors import ConfigError, SinkError
from penstock.exactly_once import (
    begin_write,
    check_once,
    check_plan,
    enter_run,
    leave_run,
    new_write,
)
from penstock.model import OutputBatch

BATCH = OutputBatch("l", "out", 7, run="run", plan="p7")


class Location:
    """A run whose log has batches 5 to 7."""

    def __init__(self) -> None:
        self.used: list[tuple[str, str]] = []

    def use_sink(self, output: str, sink: str) -> None:
        self.used.append((output, sink))

    def plan_of(self, batch_id: int) -> str | None:
        return f"p{batch_id}" if 5 <= batch_id <= 7 else None


@pytest.fixture
def location() -> Iterator[Location]:
    location = Location()
    enter_run("l", "run", location)
    yield location
    leave_run("l", "run")


@pytest.mark.parametrize(
    ("newest_id", "plan", "problem"),
    [
        (7, "p7", None),
        (7, "other", "batch 7 of output 'out' is written already, with other records"),
        (6, "p6", None),
        (6, "other", "follows on a batch 6 that is not the one which the sink holds"),
        (2, "other", None),  # the location's log does not reach so far back
        (-1, "", None),
    ],
)
def test_the_newest_batch_of_a_sink(
    location: Location, newest_id: int, plan: str, problem: str | None
) -> None:
    if problem is None:
        check_plan(BATCH, newest_id, plan, "sink")
    else:
        with pytest.raises(SinkError, match=problem):
            check_plan(BATCH, newest_id, plan, "sink")


def test_a_run_is_told_of_its_sinks_and_others_are_not(location: Location) -> None:
    begin_write(BATCH, "sink")
    begin_write(OutputBatch("another", "out", 7, run="run", plan="p7"), "sink")
    assert location.used == [("out", "sink")]
    with pytest.raises(ConfigError, match="batch 7 of output 'out' has no plan"):
        begin_write(OutputBatch("l", "out", 7, run="run"), "sink")


def test_each_entry_has_a_plan_also_one_that_names_no_run() -> None:
    entry = OffsetSeq(1000, conf={"spark.penstock.run": "abc"}, sources=("1",))
    assert plan_of(entry) == "abc-1000"
    assert plan_of(OffsetSeq(1000, sources=("1",))) == "-1000"


@pytest.mark.parametrize("write", ["by an earlier run", ""])
def test_what_an_earlier_run_has_written_is_found_once(write: str) -> None:
    for run in ("first", "second"):
        batch = replace(BATCH, run=run)
        check_once(batch, write, "sink")
        with pytest.raises(SinkError, match="has written batch 7 already in this run"):
            check_once(batch, write, "sink")


def test_what_this_run_has_written_is_refused_whatever_the_sink_is_called() -> None:
    one, another = new_write(BATCH), new_write(BATCH)
    for write, sink in ((one, "localhost"), (one, "127.0.0.1"), (another, "s3a://lake")):
        with pytest.raises(SinkError, match="has written batch 7 already in this run"):
            check_once(BATCH, write, sink)
    check_once(replace(BATCH, run="the next"), one, "localhost")
    check_once(replace(BATCH, batch_id=8), one, "localhost")
    check_once(replace(BATCH, output="another"), another, "localhost")


def test_where_the_run_is_not_known_a_batch_may_run_again() -> None:
    batch = replace(BATCH, run="")
    write = new_write(batch)
    for _ in range(2):
        check_once(batch, write, "sink")
