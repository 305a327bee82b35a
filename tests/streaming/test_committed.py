"""Inputs are told of commits: in order, before releases, at least once over crashes."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark import RDD, SparkContext

from penstock.streaming import InputDStream, SourceRange, StreamingContext
from penstock.testing import ManualClock
from tests.crash_steps import PROTOCOL, Moment, Steps
from tests.streaming.runs import Runs

pytestmark = pytest.mark.spark


class Numbers(InputDStream):
    """Each batch takes one number; batch N takes number N, and ends after it."""

    def __init__(self, ssc: StreamingContext, program: Program) -> None:
        super().__init__(ssc, "numbers")
        self.program = program

    def latest_offset(self, start: Any, time_ms: int) -> Any:
        return {self.name: {"numbers": self._number(start) + 1}}

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        return self.ssc.sparkContext.parallelize([self._number(wanted.start)], 1)

    def on_committed(self, done: SourceRange) -> None:
        number = self._number(done.start)
        assert (self.program.location / "commits" / str(number)).exists()
        if number in self.program.failing:
            self.program.failing.remove(number)
            raise ConnectionError("the source is down")
        self.program.events.append(("committed", number))

    def on_released(self, done: SourceRange) -> None:
        self.program.events.append(("released", self._number(done.start)))

    def _number(self, offset: Any) -> int:
        return self.partitions(offset).get("numbers", 0)


class Program(Runs):
    """What its input is told, over all runs."""

    def __init__(self, sc: SparkContext, clock: ManualClock, location: Path) -> None:
        super().__init__(sc, location, clock)
        self.events: list[tuple[str, int]] = []
        self.failing: list[int] = []

    def run(self, batches: int) -> None:
        """Run new batches, and end."""
        with self.running_program(
            lambda ssc: Numbers(ssc, self).foreachRDD(lambda rdd: None)
        ) as stepper:
            stepper.step(batches)

    def told(self) -> list[int]:
        return [number for event, number in self.events if event == "committed"]


@pytest.fixture
def program(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> Program:
    return Program(sc, clock, tmp_path / "checkpoint")


def test_commits_are_told_in_order_and_before_releases(program: Program) -> None:
    program.run(4)
    assert program.told() == [0, 1, 2, 3]
    assert [number for event, number in program.events if event == "released"] == [0, 1, 2]
    for number in range(3):
        events = program.events
        assert events.index(("committed", number)) < events.index(("released", number))


def test_a_call_that_fails_is_repeated_and_holds_everything_back(
    program: Program, caplog: pytest.LogCaptureFixture
) -> None:
    program.failing = [1, 1, 1]
    with caplog.at_level(logging.WARNING):
        program.run(5)
    assert program.told() == [0, 1, 2, 3, 4]
    assert "numbers cannot process the commit of batch 1 now" in caplog.text
    assert "the source is down" in caplog.text


MOMENTS = [
    "before-commit-2",
    "after-commit-2",
    "before-plan-3",
    "after-plan-3",
    "before-told-2",
    "after-told-2",
    "before-retire-2",
    "after-plan-4",
]


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_each_commit_is_told_at_least_once_over_a_crash(program: Program, moment: str) -> None:
    steps = Steps(Moment.parse(moment), steps={**PROTOCOL, "told": (Numbers, "on_committed")})
    with steps.watched(), suppress(Exception):
        program.run(5)
    assert steps.ended
    before = program.told()
    program.run(3)
    after = program.told()[len(before) :]
    last = len(list((program.location / "commits").glob("[0-9]*"))) - 1
    assert before == list(range(len(before)))
    assert after == list(range(after[0], last + 1)), "in order, and none left out"
    assert len(before) - 2 <= after[0] <= len(before), "few are told twice, none is passed over"
