"""Parts of the engine that need no Spark: the timer, slots, what a function takes."""

from __future__ import annotations

import queue
from datetime import datetime
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.streaming.scheduler.recurring_timer import RecurringTimer
from penstock.streaming.scheduler.slots import check_slots, task_slots
from penstock.streaming.transforms import batch_time, takes_time
from penstock.testing import ManualClock

WAIT_S = 10.0


def test_timer_calls_at_every_multiple_of_the_period_and_leaves_none_out() -> None:
    clock = ManualClock(1050)
    calls: queue.Queue[int] = queue.Queue()
    timer = RecurringTimer(clock, 100, calls.put, "timer")
    assert timer.first_tick_after(1050) == 1100
    assert timer.first_tick_after(1100) == 1200
    timer.start(1100)
    clock.advance(49)
    clock.advance(1)
    assert calls.get(timeout=WAIT_S) == 1100
    clock.advance(350)  # a pause: the calls come late, and all of them
    assert [calls.get(timeout=WAIT_S) for _ in range(3)] == [1200, 1300, 1400]
    assert timer.stop() == 1500
    assert calls.empty()


def test_timer_that_was_never_started_stops() -> None:
    assert RecurringTimer(ManualClock(), 100, lambda _: None, "timer").stop() == 0


@pytest.mark.parametrize(
    ("master", "conf", "slots"),
    [
        ("local", {}, 1),
        ("local[4]", {}, 4),
        ("local[4, 2]", {}, 4),
        ("local[*]", {}, 8),
        ("local[*,3]", {}, 8),
        ("local-cluster[2,3,1024]", {}, 6),
        ("spark://host:7077", {}, None),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "2"}, 6),
        (
            "yarn",
            {"spark.executor.instances": "3", "spark.dynamicAllocation.enabled": "true"},
            None,
        ),
    ],
)
def test_task_slots(master: str, conf: dict[str, str], slots: int | None) -> None:
    assert task_slots(master, conf, cores=8) == slots


@pytest.mark.parametrize(("receivers", "slots"), [(0, 1), (1, 2), (7, None), (0, None)])
def test_enough_slots(receivers: int, slots: int | None) -> None:
    check_slots(receivers, slots)


@pytest.mark.parametrize(("receivers", "slots"), [(1, 1), (2, 2), (5, 2)])
def test_too_few_slots(receivers: int, slots: int) -> None:
    with pytest.raises(ConfigError, match="no batch could run") as caught:
        check_slots(receivers, slots)
    assert f"local[{receivers + 1}]" in str(caught.value)


class Method:
    def plain(self, rdd: Any) -> Any:
        return rdd

    def timed(self, time: datetime, rdd: Any) -> Any:
        return rdd


@pytest.mark.parametrize(
    ("func", "timed"),
    [
        (lambda rdd: rdd, False),
        (lambda time, rdd: rdd, True),
        (lambda rdd, factor=3: rdd, False),
        (lambda *rdds: rdds, False),
        (Method().plain, False),
        (Method().timed, True),
        (print, False),
        (len, False),
    ],
)
def test_takes_time(func: Any, timed: bool) -> None:
    assert takes_time(func) is timed


def test_batch_time_is_local_and_naive_as_in_pyspark() -> None:
    moment = batch_time(1_500)
    assert moment.tzinfo is None
    assert moment.timestamp() == 1.5
