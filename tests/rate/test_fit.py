"""The overhead-aware estimator: what it learns of batches, and what it makes of that."""

from __future__ import annotations

import logging
import math
from itertools import pairwise

import pytest

from penstock.errors import ConfigError
from penstock.rate import FitRateEstimator

INTERVAL_MS = 1000


class Job:
    """Feeds an estimator with batches of a job that costs what it is told to."""

    def __init__(self, fixed_ms: float, per_record_ms: float, initial_rate: float = 1000.0) -> None:
        self.estimator = FitRateEstimator(INTERVAL_MS, min_rate=1.0)
        self.estimator.limited_to(initial_rate)
        self.fixed_ms, self.per_record_ms = fixed_ms, per_record_ms
        self.rate = initial_rate
        self.time_ms = 0

    def batch(self, count: float | None = None, factor: float = 1.0, late_ms: int = 0) -> int:
        """Run a batch, as large as the limit if no count is given; return how long it took."""
        records = int(self.rate if count is None else min(count, self.rate))
        delay_ms = round((self.fixed_ms + self.per_record_ms * records) * factor)
        self.time_ms += INTERVAL_MS
        rate = self.estimator.compute(self.time_ms, records, delay_ms, late_ms)
        self.rate = self.rate if rate is None else rate
        return delay_ms

    def batches(self, number: int) -> list[int]:
        return [self.batch() for _ in range(number)]

    @property
    def ideal_rate(self) -> float:
        return (0.9 * INTERVAL_MS - self.fixed_ms) / self.per_record_ms

    @property
    def why(self) -> str:
        return self.estimator.reasoning.why


@pytest.mark.parametrize("fixed_ms", [5, 80, 400])
@pytest.mark.parametrize("per_record_ms", [0.001, 0.1, 5])
def test_it_tells_fixed_cost_and_cost_per_record_apart(
    fixed_ms: float, per_record_ms: float
) -> None:
    job = Job(fixed_ms, per_record_ms, initial_rate=0.02 * INTERVAL_MS / per_record_ms)
    job.batches(8)
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.03)
    reasoning = job.estimator.reasoning
    assert reasoning.why == "target"
    assert reasoning.fixed_ms == pytest.approx(fixed_ms, abs=20)
    assert reasoning.per_record_ms == pytest.approx(per_record_ms, rel=0.05)


def test_it_answers_from_the_first_batch_on_and_never_trusts_one_too_far() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.001, initial_rate=100)
    job.batch()
    # 100 records took 100 ms: were that all theirs, 900 would fill the target.
    assert job.why == "first batch"
    assert job.rate == pytest.approx(900, rel=0.02)


def test_a_cold_first_batch_is_forgotten() -> None:
    job = Job(fixed_ms=80, per_record_ms=0.05)
    job.batch(factor=40)
    assert job.rate == 1000  # what it was: one batch may be cold, a second one tells
    job.batches(3)
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.15)


def test_a_first_limit_that_was_too_high_is_lowered_by_the_second_batch() -> None:
    job = Job(fixed_ms=80, per_record_ms=5.0)
    job.batch()
    assert job.rate == 1000
    job.batch()
    assert job.rate < 2 * job.ideal_rate


def test_a_cold_first_batch_does_not_hide_a_large_fixed_cost() -> None:
    job = Job(fixed_ms=300, per_record_ms=0.01)
    job.batch(factor=40)
    job.batches(6)
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.15)


def test_no_batch_is_ten_times_larger_than_any_before() -> None:
    job = Job(fixed_ms=5, per_record_ms=1e-5, initial_rate=50)
    sizes = []
    for _ in range(10):
        sizes.append(job.rate)
        job.batch()
    assert sizes[-1] > 10**7
    assert all(later <= 10 * earlier for earlier, later in pairwise(sizes))


def test_a_start_at_a_trickle_is_quick() -> None:
    job = Job(fixed_ms=400, per_record_ms=0.02, initial_rate=20)
    job.batches(7)
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.1)


def test_a_slowdown_is_answered_at_once_and_followed_in_few_batches() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(20)
    job.per_record_ms *= 4
    assert job.batch() > 3 * INTERVAL_MS
    assert job.why == "surprise"
    delays_ms = job.batches(5)
    assert max(delays_ms) <= INTERVAL_MS
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.05)


def test_a_job_that_became_faster_is_followed_too() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.4)
    job.batches(20)
    job.per_record_ms /= 4
    job.batches(5)
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.05)


def test_an_outlier_costs_one_small_batch() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(20)
    before = job.rate
    job.batch(factor=5)
    assert job.rate < 0.5 * before
    job.batch()
    assert job.rate == pytest.approx(before, rel=0.05)


def test_drift_is_followed() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(10)
    for _ in range(100):
        job.per_record_ms *= 1.01
        assert 0.85 * INTERVAL_MS <= job.batch() <= INTERVAL_MS


def test_a_quiet_hour_does_not_collapse_the_rate() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(10)
    before = job.rate
    for number in range(3600):
        job.batch(count=1 + number % 10, factor=1 + 0.1 * math.sin(number))
    assert job.why == "source-limited"
    assert job.rate == pytest.approx(before, rel=0.1)
    assert job.batch() <= 1.1 * INTERVAL_MS


def test_a_slowdown_between_small_batches_lowers_the_limit_before_load_comes() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(20)
    small = 0.3 * job.rate
    job.per_record_ms *= 4
    for _ in range(5):
        job.batch(count=small)
    assert job.batch() <= 1.1 * INTERVAL_MS


def test_what_small_batches_cannot_tell_stays_open_until_load_comes() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(20)
    job.per_record_ms *= 4
    job.batch()
    for _ in range(10):
        job.batch(count=5)
    assert job.why == "surprise"
    assert job.batch() <= 1.1 * INTERVAL_MS
    assert job.why != "surprise"


def test_an_open_question_does_not_blind_it_to_a_change() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    for number in range(60):
        job.batch(count=10 if number % 3 else None, factor=1.1 if number % 2 else 0.9)
    job.batch(count=10, factor=1.8)  # a surprise that says next to nothing of large batches
    assert job.why == "surprise"
    job.per_record_ms *= 2.5
    small = 0.35 * job.rate
    for _ in range(5):
        job.batch(count=small)
    assert job.batch() <= 1.1 * INTERVAL_MS


def test_a_quiet_start_leaves_the_initial_rate_alone() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    for number in range(200):
        job.batch(count=10, factor=1 + 0.1 * math.sin(number))
    assert job.rate == 1000.0


def test_late_batches_are_drained() -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(10)
    job.batch(late_ms=300)
    assert job.why == "draining"
    assert job.estimator.reasoning.target_utilisation < 0.9
    assert job.batch() < 0.75 * INTERVAL_MS


def test_a_fixed_cost_beyond_the_interval_leaves_a_trickle_and_says_so() -> None:
    job = Job(fixed_ms=1500, per_record_ms=0.1)
    job.batches(20)
    assert job.why == "fixed cost fills the interval"
    assert 1.0 < job.rate < 5000


def test_at_the_lowest_limit_two_sizes_take_turns() -> None:
    job = Job(fixed_ms=0, per_record_ms=5000, initial_rate=1.0)
    rates = [job.rate for _ in range(5) if job.batch()]
    assert rates == [1.0, 1.0, 4.0, 1.0, 4.0]


def test_slow_records_are_not_taken_for_a_fixed_cost() -> None:
    job = Job(fixed_ms=0, per_record_ms=20, initial_rate=50.0)
    took_ms = job.batches(50)
    assert max(took_ms[5:]) <= 1.1 * INTERVAL_MS


def test_the_rate_never_falls_below_its_minimum() -> None:
    estimator = FitRateEstimator(INTERVAL_MS, min_rate=25.0)
    assert estimator.compute(1000, 10, 100_000, 0) == 25.0
    assert estimator.reasoning.why == "minimum rate"


@pytest.mark.parametrize(
    ("time_ms", "count", "processing_ms"),
    [(30_000, 0, 100), (30_000, 100, 0), (20_000, 100, 100), (-5, 100, 100), (30_000, -1, 100)],
)
def test_a_batch_that_tells_nothing_changes_nothing(
    time_ms: int, count: int, processing_ms: int
) -> None:
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(20)
    assert job.estimator.compute(time_ms, count, processing_ms, 0) is None
    assert job.why == "no estimate"
    assert job.estimator.reasoning.limit_records_per_s is None
    job.time_ms = 40_000
    job.batch()
    assert job.rate == pytest.approx(job.ideal_rate, rel=0.03)


def test_a_clock_that_was_set_back_costs_one_estimate() -> None:
    estimator = FitRateEstimator(INTERVAL_MS)
    assert estimator.compute(10_000_000, 1000, 500, 0) is not None
    assert estimator.compute(5_000, 1000, 500, 0) is None
    assert estimator.compute(6_000, 1000, 500, 0) is not None


def test_its_reasoning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="penstock.rate.fit")
    job = Job(fixed_ms=100, per_record_ms=0.1)
    job.batches(10)
    assert len(caplog.records) == 10
    assert caplog.messages[-1] == job.estimator.explain()
    assert caplog.messages[-1].startswith("target: ")
    assert "ms + " in caplog.messages[-1]


@pytest.mark.parametrize("value", [-1.0, 0.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["batch_interval_ms", "min_rate"])
def test_wrong_arguments_are_refused_by_name(name: str, value: float) -> None:
    arguments = {"batch_interval_ms": 1000.0, "min_rate": 1.0, name: value}
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        FitRateEstimator(**arguments)  # type: ignore[arg-type]
