"""Parts of the engine that need no Spark: the timer, slots, what a function takes."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import MagicMock, create_autospec

import pytest
from pyspark import SparkContext

from penstock.clock import SteadyClock
from penstock.driver.spark import check_slots, task_slots
from penstock.errors import ConfigError, StorageError
from penstock.storage import open_storage
from penstock.streaming.core.batch import Batch
from penstock.streaming.core.call_site import CallSite
from penstock.streaming.core.listener import ListenerBus
from penstock.streaming.core.transforms import batch_time, takes_time
from penstock.streaming.engine import job_scheduler
from penstock.streaming.engine.batch_lifecycle import BatchLifecycle
from penstock.streaming.engine.jobs import Job, JobSet
from penstock.streaming.engine.program_end import ProgramEnd
from penstock.streaming.engine.ticks import RecurringTimer, tick_after
from penstock.testing import ManualClock
from tests.waiting import WAIT_S


def test_timer_calls_at_every_multiple_of_the_period_and_leaves_none_out() -> None:
    clock = ManualClock(1050)
    calls: queue.Queue[int] = queue.Queue()
    timer = RecurringTimer(clock, 100, calls.put, "timer")
    timer.start(1100)
    clock.advance(49)
    clock.advance(1)
    assert calls.get(timeout=WAIT_S) == 1100
    clock.advance(350)  # a pause: the calls come late, and all of them
    assert [calls.get(timeout=WAIT_S) for _ in range(3)] == [1200, 1300, 1400]
    assert timer.stop() == 1500
    assert calls.empty()


YEAR_MS = 365 * 86_400_000


@pytest.fixture
def ticking() -> Iterator[tuple[ManualClock, queue.Queue[int]]]:
    """A timer of a period of 100 ms, whose first call was due at 1100 ms and came."""
    clock = ManualClock(1050)
    calls: queue.Queue[int] = queue.Queue()
    timer = RecurringTimer(clock, 100, calls.put, "timer")
    timer.start(1100)
    clock.advance(50)
    assert calls.get(timeout=WAIT_S) == 1100
    yield clock, calls
    timer.stop()


Ticking = tuple[ManualClock, "queue.Queue[int]"]


def tick(ticking: Ticking, by_ms: int = 100) -> int:
    clock, calls = ticking
    assert calls.empty()
    clock.advance(by_ms)
    return calls.get(timeout=WAIT_S)


def test_timer_goes_on_when_the_clock_is_set_back(
    ticking: Ticking, caplog: pytest.LogCaptureFixture
) -> None:
    ticking[0].set_wall(-YEAR_MS)
    assert [tick(ticking) for _ in range(3)] == [1200, 1300, 1400]
    assert "The clock of this machine was set back by 31536000.0 s" in caplog.text
    ticking[0].set_wall(YEAR_MS + 1000)  # and forward again, by more
    assert [tick(ticking) for _ in range(2)] == [2500, 2600]


def test_timer_calls_once_when_the_clock_is_set_forward(
    ticking: Ticking, caplog: pytest.LogCaptureFixture
) -> None:
    ticking[0].set_wall(YEAR_MS + 30)
    ahead_ms = YEAR_MS // 100 * 100
    assert tick(ticking) == ahead_ms + 1200
    assert "was set forward by 31536000.0 s" in caplog.text
    assert tick(ticking, 70) == ahead_ms + 1300
    assert ticking[1].empty()


def test_timer_is_not_held_up_by_a_first_time_a_year_away() -> None:
    clock = ManualClock(1050)
    calls: queue.Queue[int] = queue.Queue()
    timer = RecurringTimer(clock, 100, calls.put, "timer")
    timer.start(1100 + YEAR_MS)
    assert [tick((clock, calls)) for _ in range(2)] == [1100 + YEAR_MS, 1200 + YEAR_MS]
    assert timer.stop() == 1300 + YEAR_MS


def test_ticks_lie_on_the_period_after_their_origin() -> None:
    after = [tick_after(time_ms, 300, 1000) for time_ms in (999, 1000, 1299, 1300)]
    assert after == [1000, 1300, 1300, 1600]


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


def test_a_batch_waits_while_the_storage_cannot_tell_of_other_drivers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(job_scheduler, "_ASK_AGAIN_S", 0.0)
    answers = iter([StorageError("503", operation="list"), StorageError("503", operation="list")])
    ran: list[str] = []
    errors: list[BaseException] = []

    def confirm_sole() -> None:
        if (error := next(answers, None)) is not None:
            ran.append("refused")
            raise error

    batches = create_autospec(BatchLifecycle, instance=True)
    batches.confirm_sole.side_effect = confirm_sole
    batches.commit.side_effect = lambda job_set: ran.append("committed")
    storage = open_storage("memory://a-program/location")
    end = ProgramEnd(storage, {}, True, errors.append, lambda error: False)
    spark = cast(SparkContext, MagicMock())
    scheduler = job_scheduler.JobScheduler(spark, SteadyClock(), ListenerBus(), batches, end, 1)
    scheduler.start(lambda job_set: ran.append("ended"))
    batch = Batch(0, 1000, ())
    job = Job(batch, 0, CallSite("foreachRDD", "p.py:1", ""), lambda: ran.append("ran"))
    scheduler.submit(JobSet(batch, [job], {}, 0, 0))
    assert scheduler.wait_idle(WAIT_S)
    scheduler.stop()
    assert (ran, errors) == (["refused", "refused", "ran", "committed", "ended"], [])


def test_a_call_is_found_where_the_package_is_imported_from_a_relative_path() -> None:
    program = """
import sys
sys.path.insert(0, "./src")
from penstock.streaming.core.call_site import user_call_site
print(user_call_site().short)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout == "user_call_site at <string>:5\n"
