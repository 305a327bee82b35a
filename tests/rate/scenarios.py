"""Scenarios for tests of estimators: four scripted ones, and any number of random ones."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

from penstock.rate import RateDecision, RateEstimator
from tests.rate.simulator import Cost, Engine, Scenario, piecewise, simulate

INTERVAL_MS = 1000
MINUTE_MS = 60_000
QUIET = piecewise((0, Cost(100, 0.1)))
"""A job that can do 9,000 records in a batch of a second."""
SCRIPTED = {
    "spike": Scenario(
        duration_ms=3 * MINUTE_MS,
        cost=QUIET,
        arrivals=piecewise((0, 4000.0), (MINUTE_MS, 40_000.0), (2 * MINUTE_MS, 4000.0)),
        source_rate=100_000,
    ),
    "slowdown": Scenario(
        duration_ms=2 * MINUTE_MS,
        cost=piecewise((0, Cost(100, 0.1)), (MINUTE_MS, Cost(400, 0.4))),
        arrivals=piecewise((0, 20_000.0)),
        source_rate=100_000,
    ),
    "backlog": Scenario(
        duration_ms=2 * MINUTE_MS,
        cost=QUIET,
        arrivals=piecewise((0, 0.0)),
        backlog=5_000_000,
        source_rate=500_000,
    ),
    "trickle": Scenario(
        duration_ms=2 * MINUTE_MS,
        cost=QUIET,
        arrivals=piecewise((0, 10.0)),
        source_rate=100_000,
    ),
}
UNBOUNDED_RATE = 1e9
"""An initial rate that bounds nothing, as Spark's when none is set."""
RANDOM_BATCHES = 120
LAST_STEP = 80
"""No random scenario changes its costs or its load at once after this batch."""


def peer(scenario: Scenario) -> Scenario:
    """Return the scenario as it is for pyspark.streaming: its first batch is not bounded."""
    return replace(scenario, initial_rate=UNBOUNDED_RATE)


def run(estimator: RateEstimator, scenario: Scenario, engine: Engine) -> list[RateDecision]:
    return [batch.decision for batch in simulate(estimator, scenario, engine)]


def drifting(at: Callable[[int], Cost], share: float, period_ms: int) -> Callable[[int], Cost]:
    """Let costs go up and down by a share of them."""

    def cost(time_ms: int) -> Cost:
        factor = 1 + share * math.sin(2 * math.pi * time_ms / period_ms)
        fixed_ms, per_record_ms = at(time_ms)
        return Cost(fixed_ms * factor, per_record_ms * factor)

    return cost


def random_scenario(seed: int) -> Scenario:
    """Return RANDOM_BATCHES of anything: steps of cost and load, drift, noise, outliers."""
    rng = random.Random(seed)
    interval_ms = rng.choice([200, 500, 1000, 2000, 10_000])
    duration_ms = RANDOM_BATCHES * interval_ms
    capacity = 10 ** rng.uniform(2.5, 6.5)  # records per second
    fixed_ms = rng.uniform(0.01, 0.3) * interval_ms

    def cost() -> Cost:
        per_record_ms = (interval_ms - fixed_ms) / (capacity * interval_ms / 1000)
        return Cost(fixed_ms * rng.uniform(0.5, 2), per_record_ms * 10 ** rng.uniform(-0.6, 0.6))

    def steps(value: Callable[[], object]) -> list[tuple[int, object]]:
        times = sorted(rng.sample(range(1, LAST_STEP), rng.randrange(4)))
        return [(time * interval_ms, value()) for time in [0, *times]]

    return Scenario(
        duration_ms=duration_ms,
        cost=drifting(
            piecewise(*steps(cost)),
            share=rng.uniform(0, 0.3),
            period_ms=rng.randrange(20, 400) * interval_ms,
        ),
        arrivals=piecewise(*steps(lambda: capacity * 10 ** rng.uniform(-3, 1))),
        batch_interval_ms=interval_ms,
        backlog=rng.choice([0, int(capacity * rng.uniform(0, 100))]),
        source_rate=capacity * rng.uniform(2, 100),
        initial_rate=capacity * 10 ** rng.uniform(-3, 0.3),
        min_rate=capacity / 1000,
        max_rate=rng.choice([None, capacity * rng.uniform(0.3, 3)]),
        noise=rng.uniform(0, 0.15),
        outliers=rng.choice([0.0, 0.02, 0.05]),
        outlier_factor=rng.uniform(2, 8),
        seed=seed,
    )
