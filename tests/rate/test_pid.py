"""The PID estimator: its numbers, its refusals, its trace."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from penstock.errors import ConfigError
from penstock.rate import TRACE, PIDRateEstimator


def pid(**arguments: float) -> PIDRateEstimator:
    return PIDRateEstimator(**{"batch_interval_ms": 1000, "min_rate": 10.0, **arguments})  # type: ignore[arg-type]


def test_the_first_batch_only_gives_the_rate_to_compare_with() -> None:
    estimator = pid()
    assert estimator.compute(1000, 500, 250, 0) is None
    assert estimator.compute(2000, 500, 500, 0) == 1000.0


def test_each_weight_has_its_term() -> None:
    # 2000 records/s at first, then 1000: an error of 1000, and 100 ms of delay stand for 100.
    def second(**weights: float) -> float | None:
        estimator = pid(**weights)
        estimator.compute(1000, 1000, 500, 0)
        return estimator.compute(2000, 1000, 1000, 100)

    assert second(proportional=0.0, integral=0.0) == 2000.0
    assert second(proportional=0.5, integral=0.0) == 1500.0
    assert second(proportional=0.5, integral=0.2) == 1480.0
    assert second(proportional=0.5, integral=0.2, derivative=0.1) == 1380.0


def test_the_rate_never_falls_below_its_minimum() -> None:
    estimator = pid(min_rate=25.0)
    estimator.compute(1000, 1000, 500, 0)
    assert estimator.compute(2000, 1, 10_000, 60_000) == 25.0


@pytest.mark.parametrize(
    ("time_ms", "count", "processing_ms"),
    [(2000, 0, 100), (2000, 100, 0), (1000, 100, 100), (500, 100, 100), (2000, -1, 100)],
)
def test_a_batch_that_tells_nothing_changes_nothing(
    time_ms: int, count: int, processing_ms: int
) -> None:
    disturbed, alone = pid(derivative=0.1), pid(derivative=0.1)
    for estimator in (disturbed, alone):
        estimator.compute(1000, 500, 250, 0)
    assert disturbed.compute(time_ms, count, processing_ms, 50) is None
    assert "no estimate" in disturbed.explain()
    assert disturbed.compute(3000, 700, 300, 20) == alone.compute(3000, 700, 300, 20)


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    "name", ["batch_interval_ms", "proportional", "integral", "derivative", "min_rate"]
)
def test_wrong_arguments_are_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"{name} is {value}.*Hint: give a finite number"):
        pid(**{name: value})


@pytest.mark.parametrize("name", ["batch_interval_ms", "min_rate"])
def test_zero_is_refused_where_spark_refuses_it(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is 0"):
        pid(**{name: 0})


TERMS = ["latestRate", "error", "latestError", "historicalError", "delaySinceUpdate", "dError"]


@pytest.mark.parametrize("level", ["DEBUG", "TRACE"])
def test_every_term_is_logged(level: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(level, logger="penstock.rate.pid")
    estimator = pid()
    estimator.compute(1000, 500, 250, 0)
    caplog.clear()
    estimator.compute(2000, 500, 500, 40)
    (line,) = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert line.startswith("New rate = 992.0")
    assert [term for term in TERMS if f"{term} = " not in line] == []


def test_trace_also_tells_what_came_in_and_what_was_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("TRACE", logger="penstock.rate.pid")
    pid().compute(1000, 500, 250, 7)
    lines: list[Any] = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert (
        "TRACE",
        "time = 1000, # records = 500, processing time = 250, scheduling delay = 7",
    ) in lines
    assert any(level == "TRACE" and "skipped" in message for level, message in lines)
    assert TRACE < logging.DEBUG
