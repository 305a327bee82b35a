"""The rate controller: bounds, publishing, and coming back after a restart."""

from __future__ import annotations

import json
import math

import pytest

from penstock.errors import ConfigError, LogFormatError
from penstock.rate import (
    FitRateEstimator,
    PIDRateEstimator,
    RateController,
    RateDecision,
    RateEstimator,
)


class Scripted(RateEstimator):
    """Answers as it is told to."""

    def __init__(self, *answers: float | None) -> None:
        self.answers = list(answers)
        self.limits: list[float] = []

    def compute(
        self, time_ms: int, num_elements: int, processing_delay_ms: int, scheduling_delay_ms: int
    ) -> float | None:
        return self.answers.pop(0)

    def limited_to(self, rate_records_per_s: float) -> None:
        self.limits.append(rate_records_per_s)

    def explain(self) -> str:
        return "as told"


class Publishing(RateController):
    """Notes what is published."""

    published: tuple[float, ...] = ()

    def publish(self, rate_records_per_s: float) -> None:
        assert rate_records_per_s == self.latest_rate
        self.published += (rate_records_per_s,)


def test_the_limit_is_finite_before_any_batch() -> None:
    assert RateController("clicks", Scripted()).latest_rate == 1000.0
    bounded = RateController("clicks", Scripted(), initial_rate=500.0, max_rate=300.0)
    assert bounded.latest_rate == 300.0


def test_estimates_are_kept_between_the_bounds() -> None:
    answers = (200.5, 5.0, 1e9, None, math.nan, math.inf, 70.25)
    controller = Publishing(
        "clicks", Scripted(*answers), initial_rate=60.0, min_rate=50.0, max_rate=250.0
    )
    rates = [controller.on_batch_completed(n, 1, 1, 0).rate for n in range(len(answers))]
    assert rates == [200.5, 50.0, 250.0, 250.0, 250.0, 250.0, 70.25]
    assert controller.published == (200.5, 50.0, 250.0, 70.25)


def test_the_highest_rate_goes_before_the_lowest() -> None:
    controller = RateController("clicks", Scripted(10.0), min_rate=100.0, max_rate=20.0)
    assert controller.on_batch_completed(1, 1, 1, 0).rate == 20.0


def test_a_decision_tells_all() -> None:
    controller = RateController("clicks", Scripted(5.0), min_rate=50.0)
    assert controller.on_batch_completed(1000, 7, 8, 9) == RateDecision(
        1000, 7, 8, 9, estimate=5.0, rate=50.0, why="as told"
    )


def test_the_highest_rate_can_change_while_it_runs() -> None:
    controller = Publishing("clicks", Scripted(400.0), min_rate=50.0)
    controller.on_batch_completed(1, 1, 1, 0)
    controller.set_max_rate(100.0)
    controller.set_max_rate(100.0)
    controller.set_max_rate(None)
    assert controller.published == (400.0, 100.0, 400.0)


def test_the_estimator_is_told_what_came_of_its_estimates() -> None:
    estimator = Scripted(400.0)
    controller = RateController("clicks", estimator, initial_rate=80.0, max_rate=300.0)
    controller.on_batch_completed(1, 1, 1, 0)
    controller.set_max_rate(200.0)
    assert estimator.limits == [80.0, 300.0, 200.0]


@pytest.mark.parametrize("make", [FitRateEstimator, PIDRateEstimator])
def test_the_last_rate_comes_back(make: type[FitRateEstimator | PIDRateEstimator]) -> None:
    controller = RateController("clicks", make(1000))
    for second in range(1, 5):
        controller.on_batch_completed(1000 * second, 3000, 500, 0)
    after_restart = Publishing("clicks", make(1000))
    after_restart.restore(controller.to_json())
    assert after_restart.latest_rate == controller.latest_rate != 1000.0
    assert after_restart.published == (controller.latest_rate,)
    assert json.loads(controller.to_json())["version"] == 1


def test_what_comes_back_is_bounded_anew() -> None:
    kept = RateController("clicks", Scripted(), initial_rate=5000.0).to_json()
    bounded = RateController("clicks", Scripted(), max_rate=100.0)
    bounded.restore(kept)
    assert bounded.latest_rate == 100.0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        "null",
        '{"version": 1}',
        '{"version": 2, "rate": 5}',
        '{"version": 1, "rate": NaN}',
        '{"version": 1, "rate": -5}',
        '{"version": 1, "rate": "fast"}',
    ],
)
def test_a_damaged_rate_is_refused(text: str) -> None:
    controller = RateController("clicks", Scripted())
    with pytest.raises(LogFormatError, match=r"Hint: delete it.*stream=clicks"):
        controller.restore(text)
    assert controller.latest_rate == 1000.0


@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize("name", ["initial_rate", "min_rate", "max_rate"])
def test_wrong_rates_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        RateController("clicks", Scripted(), **{name: value})
    with pytest.raises(ConfigError, match=f"max_rate is {value}"):
        RateController("clicks", Scripted()).set_max_rate(value)
