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
from penstock.testing.stepper import Stepper
from tests.crash_steps import PROTOCOL, Moment, Steps

pytestmark = pytest.mark.spark


class Numbers(InputDStream):
    """Each batch takes one number; batch N takes number N, and ends after it."""

    def __init__(self, ssc: StreamingContext, site: Site) -> None:
        super().__init__(ssc, "numbers")
        self.site = site

    def latest_offset(self, start: Any, time_ms: int) -> Any:
        return {self.name: {"numbers": self._number(start) + 1}}

    def compute_range(self, wanted: SourceRange) -> RDD[Any]:
        return self.ssc.sparkContext.parallelize([self._number(wanted.start)], 1)

    def on_committed(self, done: SourceRange) -> None:
        number = self._number(done.start)
        assert (self.site.location / "commits" / str(number)).exists()
        if number in self.site.failing:
            self.site.failing.remove(number)
            raise ConnectionError("the source is down")
        self.site.events.append(("committed", number))

    def on_released(self, done: SourceRange) -> None:
        self.site.events.append(("released", self._number(done.start)))

    def _number(self, offset: Any) -> int:
        return self.partitions(offset).get("numbers", 0)


class Site:
    """Runs of one program on one checkpoint location."""

    def __init__(self, sc: SparkContext, clock: ManualClock, location: Path) -> None:
        self.sc, self.clock, self.location = sc, clock, location
        self.events: list[tuple[str, int]] = []
        self.failing: list[int] = []

    def run(self, batches: int) -> None:
        """Run new batches, and end."""
        ssc = StreamingContext.getOrCreate(
            str(self.location), lambda: StreamingContext(self.sc, 1, clock=self.clock), "program"
        )
        Numbers(ssc, self).foreachRDD(lambda rdd: None)
        stepper = Stepper(ssc, self.clock)
        try:
            ssc.start()
            stepper.step(batches)
        finally:
            ssc.stop(stopSparkContext=False)

    def told(self) -> list[int]:
        return [number for event, number in self.events if event == "committed"]


@pytest.fixture
def site(sc: SparkContext, clock: ManualClock, tmp_path: Path) -> Site:
    return Site(sc, clock, tmp_path / "checkpoint")


def test_commits_are_told_in_order_and_before_releases(site: Site) -> None:
    site.run(4)
    assert site.told() == [0, 1, 2, 3]
    assert [number for event, number in site.events if event == "released"] == [0, 1, 2]
    for number in range(3):
        events = site.events
        assert events.index(("committed", number)) < events.index(("released", number))


def test_a_call_that_fails_is_repeated_and_holds_everything_back(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.failing = [1, 1, 1]
    with caplog.at_level(logging.WARNING):
        site.run(5)
    assert site.told() == [0, 1, 2, 3, 4]
    assert "numbers cannot take note that batch 1 is committed now" in caplog.text
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
def test_each_commit_is_told_at_least_once_over_a_crash(site: Site, moment: str) -> None:
    steps = Steps(Moment.parse(moment), steps={**PROTOCOL, "told": (Numbers, "on_committed")})
    with steps.watched(), suppress(Exception):
        site.run(5)
    assert steps.ended
    before = site.told()
    site.run(3)
    after = site.told()[len(before) :]
    last = len(list((site.location / "commits").glob("[0-9]*"))) - 1
    assert before == list(range(len(before)))
    assert after == list(range(after[0], last + 1)), "in order, and none left out"
    assert len(before) - 2 <= after[0] <= len(before), "few are told twice, none is passed over"
