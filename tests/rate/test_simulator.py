"""Estimators in simulation: the four scripted loads, and a thousand random ones."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.errors import ConfigError
from penstock.rate import FitRateEstimator, PIDRateEstimator, RateDecision, RateEstimator
from tests.rate.measures import (
    batches_until_stable,
    overshoot,
    peak_scheduling_delay_ms,
    utilisation,
)
from tests.rate.scenarios import (
    INTERVAL_MS,
    LAST_STEP,
    MINUTE_MS,
    SCRIPTED,
    drifting,
    peer,
    random_scenario,
    run,
)
from tests.rate.simulator import (
    Cost,
    Engine,
    Scenario,
    SimulatedBatch,
    piecewise,
    simulate,
)

SEEDS = range(10)
NOISE = 0.03
STEP = {"spike": (MINUTE_MS, 2 * MINUTE_MS), "slowdown": (MINUTE_MS, 2 * MINUTE_MS)}


def after_step(name: str, seed: int) -> list[RateDecision]:
    """Run ``fit`` on a scripted load; return what follows its step, which may be the start."""
    scenario = replace(SCRIPTED[name], noise=NOISE, seed=seed)
    begin_ms, end_ms = STEP.get(name, (0, scenario.duration_ms))
    batches = simulate(FitRateEstimator(INTERVAL_MS), scenario)
    return [b.decision for b in batches if begin_ms <= b.due_ms < end_ms]


@pytest.mark.parametrize("name", ["spike", "slowdown", "backlog"])
@pytest.mark.parametrize("seed", SEEDS)
def test_fit_is_stable_within_five_batches_of_a_step(name: str, seed: int) -> None:
    batches = after_step(name, seed)
    assert len(batches) > 50
    assert batches_until_stable(batches, INTERVAL_MS) <= 5
    assert overshoot(batches[5:], INTERVAL_MS) <= 0.1
    assert utilisation(batches[5:], INTERVAL_MS) >= 0.85


@pytest.mark.parametrize("name", ["spike", "slowdown", "backlog"])
@pytest.mark.parametrize("seed", SEEDS)
def test_fit_is_late_by_half_of_what_spark_is_at_most(name: str, seed: int) -> None:
    scenario = replace(SCRIPTED[name], noise=NOISE, seed=seed)
    ours = run(FitRateEstimator(INTERVAL_MS), scenario, "journal")
    theirs = run(PIDRateEstimator(INTERVAL_MS), peer(scenario), "queue")
    assert peak_scheduling_delay_ms(ours) <= 0.5 * peak_scheduling_delay_ms(theirs)


@pytest.mark.parametrize("name", list(SCRIPTED))
@pytest.mark.parametrize("seed", SEEDS)
def test_pid_here_is_never_later_than_in_spark(name: str, seed: int) -> None:
    scenario = replace(SCRIPTED[name], noise=NOISE, seed=seed)
    ours = run(PIDRateEstimator(INTERVAL_MS), scenario, "journal")
    theirs = run(PIDRateEstimator(INTERVAL_MS), peer(scenario), "queue")
    assert peak_scheduling_delay_ms(ours) <= peak_scheduling_delay_ms(theirs)


def test_a_trickle_collapses_the_rate_of_pid_and_leaves_that_of_fit() -> None:
    scenario = replace(SCRIPTED["trickle"], noise=NOISE)
    fit = run(FitRateEstimator(INTERVAL_MS), scenario, "journal")
    pid = run(PIDRateEstimator(INTERVAL_MS), scenario, "journal")
    assert {batch.rate for batch in fit} == {scenario.initial_rate}
    assert pid[-1].rate < 0.2 * scenario.initial_rate
    for batches in (fit, pid):
        assert peak_scheduling_delay_ms(batches) == 0
        assert {batch.num_elements for batch in batches[1:]} == {10}


def estimator_for(kind: str, scenario: Scenario) -> RateEstimator:
    if kind == "fit":
        return FitRateEstimator(scenario.batch_interval_ms, scenario.min_rate)
    return PIDRateEstimator(scenario.batch_interval_ms, min_rate=scenario.min_rate)


def check_limits(scenario: Scenario, batches: list[SimulatedBatch]) -> None:
    highest = math.inf if scenario.max_rate is None else scenario.max_rate
    lowest = min(scenario.min_rate, highest)
    assert all(lowest <= batch.decision.rate <= highest for batch in batches), scenario


@pytest.mark.parametrize("kind", ["fit", "pid"])
@pytest.mark.parametrize("hundred", range(10))
def test_no_random_load_leads_astray(kind: str, hundred: int) -> None:
    """Limits hold; long after the last step, batches are late by what an outlier takes at most."""
    for seed in range(100 * hundred, 100 * hundred + 100):
        scenario = random_scenario(seed)
        interval_ms = scenario.batch_interval_ms
        batches = simulate(estimator_for(kind, scenario), scenario)
        check_limits(scenario, batches)
        settled = [b.decision for b in batches if b.due_ms >= (LAST_STEP + 20) * interval_ms]
        assert settled, seed
        allowed = 1.5 * scenario.outlier_factor if scenario.outliers else 1.0
        assert peak_scheduling_delay_ms(settled) <= allowed * interval_ms, seed


@pytest.mark.parametrize("kind", ["fit", "pid"])
def test_limits_hold_in_sparks_engine_too(kind: str) -> None:
    for seed in range(100):
        scenario = random_scenario(seed)
        check_limits(scenario, simulate(estimator_for(kind, scenario), scenario, "queue"))


def test_drift_and_outliers_together_do_not_hold_the_rate_down() -> None:
    """Outliers make batches look noisy, and what looks like noise is easily drift."""
    scenario = Scenario(
        duration_ms=5 * MINUTE_MS,
        cost=drifting(piecewise((0, Cost(300, 0.05))), share=0.3, period_ms=MINUTE_MS),
        arrivals=piecewise((0, 1e6)),
        noise=0.1,
        outliers=0.05,
    )
    for seed in range(50):
        batches = run(FitRateEstimator(INTERVAL_MS), replace(scenario, seed=seed), "journal")
        busy_s = sum(batch.processing_delay_ms for batch in batches) / 1000
        records = sum(batch.num_elements for batch in batches)
        assert records / busy_s > 8500, seed


@pytest.mark.parametrize("seed", SEEDS)
def test_fit_takes_no_endless_batch_where_most_of_it_is_fixed_cost(seed: int) -> None:
    """A loaded machine: noise and drift hide what a record costs, so a limit is a guess."""
    cost = drifting(piecewise((0, Cost(700, 0.4))), share=0.3, period_ms=20_000)
    arrivals = piecewise((0, 20_000.0))
    loaded = Scenario(duration_ms=5 * MINUTE_MS, cost=cost, arrivals=arrivals, noise=0.1, seed=seed)
    batches = run(FitRateEstimator(INTERVAL_MS), loaded, "journal")
    assert max(batch.processing_delay_ms for batch in batches) < 4 * INTERVAL_MS


@pytest.mark.parametrize("engine", ["journal", "queue"])
def test_no_record_is_lost_or_made_up(engine: Engine) -> None:
    scenario = replace(SCRIPTED["spike"], backlog=1234, noise=NOISE)
    batches = simulate(FitRateEstimator(INTERVAL_MS), scenario, engine)
    last = batches[-1]
    came = 1234 + 4000 * 60 + 40_000 * 60 + 4000 * (last.decision.time_ms - 2 * MINUTE_MS) / 1000
    taken = sum(batch.decision.num_elements for batch in batches)
    assert taken + last.waiting == pytest.approx(came, abs=2)


@pytest.mark.parametrize("engine", ["journal", "queue"])
def test_batches_run_one_after_the_other(engine: Engine) -> None:
    batches = run(PIDRateEstimator(INTERVAL_MS), SCRIPTED["slowdown"], engine)
    ends_and_starts = [(a.time_ms, b.time_ms - b.processing_delay_ms) for a, b in pairwise(batches)]
    assert all(start_ms >= end_ms for end_ms, start_ms in ends_and_starts)


def test_late_ticks_are_merged_or_queued() -> None:
    scenario = Scenario(
        duration_ms=10_000,
        cost=piecewise((0, Cost(2500, 0.0))),
        arrivals=piecewise((0, 100.0)),
    )
    merged, queued = (
        simulate(FitRateEstimator(INTERVAL_MS), scenario, engine) for engine in ("journal", "queue")
    )
    assert [batch.due_ms for batch in merged] == [1000, 2000, 4000]
    assert [batch.decision.scheduling_delay_ms for batch in merged] == [0, 1500, 2000]
    assert [batch.due_ms for batch in queued] == [1000, 2000, 3000]
    assert [batch.decision.scheduling_delay_ms for batch in queued] == [0, 1500, 3000]


def test_the_same_seed_gives_the_same_run() -> None:
    first, again, other = (
        simulate(FitRateEstimator(INTERVAL_MS), replace(SCRIPTED["spike"], noise=0.1, seed=seed))
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize("steps", [(), ((5, 1.0),), ((0, 1.0), (9, 2.0), (3, 1.0))])
def test_a_script_has_to_begin_at_0_and_ascend(steps: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ConfigError, match="ascending order"):
        piecewise(*steps)


def decision(processing_delay_ms: int, scheduling_delay_ms: int = 0) -> RateDecision:
    return RateDecision(0, 100, processing_delay_ms, scheduling_delay_ms, None, 100.0, "")


def test_measures() -> None:
    batches = [decision(900, 1500), decision(300), decision(1200), decision(1100), decision(900)]
    assert peak_scheduling_delay_ms(batches) == 1500
    assert overshoot(batches, 1000) == pytest.approx(0.2)
    assert overshoot(batches[-1:], 1000) == 0
    assert utilisation(batches, 1000) == pytest.approx(0.88)
    assert batches_until_stable(batches, 1000) == 3
    assert batches_until_stable(batches[:3], 1000) == 3
    assert batches_until_stable(batches[3:], 1000) == 0
    assert (peak_scheduling_delay_ms([]), utilisation([], 1000)) == (0, 0.0)


@pytest.mark.parametrize("estimator", [FitRateEstimator, PIDRateEstimator])
def test_the_journal_stays_bounded_when_more_comes_than_can_be_done(
    estimator: type[FitRateEstimator | PIDRateEstimator],
) -> None:
    overload = replace(
        SCRIPTED["backlog"],
        arrivals=piecewise((0, 50_000.0)),
        duration_ms=30 * MINUTE_MS,
        noise=0.1,
        outliers=0.05,
    )
    batches = simulate(estimator(INTERVAL_MS), overload)
    assert max(batch.in_journal for batch in batches) < 15 * 9000  # 15 s of what the job can do
    assert utilisation([batch.decision for batch in batches], INTERVAL_MS) > 0.85
