"""Simulates back pressure: any estimator against scripted costs and arrivals, on manual time.

A run takes about as long as its estimator thinks: thousands of batches a second. Two engines are
modelled. Both hold the source back at the limit, and both answer a change of the limit at once:

- ``journal``: penstock's. A batch is planned when it can run, and takes of the journal what the
  limit allows for one interval; ticks that come meanwhile are merged (docs/adr/0001). How much
  is left in the journal decides how fast it is received (penstock.rate.input_rate).
- ``queue``: Spark's. Every tick makes a batch of all that was received since the tick before;
  batches wait in a queue.

The scheduling delay is how late a batch starts: after its tick, or, with merged ticks, after the
first of them.
"""

from __future__ import annotations

import bisect
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from penstock.conf import DEFAULT_INITIAL_RATE
from penstock.errors import ConfigError
from penstock.rate.controller import RateController, RateDecision
from penstock.rate.estimator import RateEstimator
from penstock.rate.input_rate import receive_rate
from penstock.rate.range_limit import Carry, RangeLimits, cut_range

__all__ = ["Cost", "Engine", "Scenario", "SimulatedBatch", "piecewise", "simulate"]

_T = TypeVar("_T")
Engine = Literal["journal", "queue"]
"""``journal`` plans a batch when it can run; ``queue``, as Spark, queues one for each interval."""
Script = Callable[[int], _T]
"""A value for each time, in milliseconds from the start. Read at ticks and at ends of batches."""


class Cost(NamedTuple):
    """What a batch takes: ``fixed_ms + per_record_ms * records``."""

    fixed_ms: float
    per_record_ms: float


def piecewise(*steps: tuple[int, _T]) -> Script[_T]:
    """Return a script that has each value from its time on; the first time is 0."""
    times = [time_ms for time_ms, _ in steps]
    if not times or times[0] != 0 or times != sorted(times):
        raise ConfigError(
            f"the steps begin at {times}",
            operation="script a scenario",
            hint="give (time_ms, value) pairs in ascending order, the first one at 0",
        )
    return lambda time_ms: steps[bisect.bisect_right(times, time_ms) - 1][1]


@dataclass(frozen=True)
class Scenario:
    """What happens around the estimator. Rates in records per second.

    Attributes:
        duration_ms: its length; batches that have not ended by then do not count.
        cost: what a batch takes, by the time of its start.
        arrivals: how fast records come to the source, which keeps them.
        batch_interval_ms: length of a batch.
        backlog: records at the source when it begins.
        source_rate: how fast the source can hand over records.
        initial_rate: limit until the first estimate.
        min_rate: lowest limit.
        max_rate: highest limit.
        noise: standard deviation of batch times, relative to them (log-normal).
        outliers: probability that a batch takes ``outlier_factor`` times as long.
        outlier_factor: see ``outliers``.
        seed: of noise and outliers.
    """

    duration_ms: int
    cost: Script[Cost]
    arrivals: Script[float]
    batch_interval_ms: int = 1000
    backlog: int = 0
    source_rate: float = math.inf
    initial_rate: float = DEFAULT_INITIAL_RATE
    min_rate: float = 100.0
    max_rate: float | None = None
    noise: float = 0.0
    outliers: float = 0.0
    outlier_factor: float = 5.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SimulatedBatch:
    """A batch that ended, what the controller made of it, and what was waiting then."""

    due_ms: int
    """The tick that it belongs to, the first one if several were merged."""
    decision: RateDecision
    waiting: int
    """Records that no batch has taken yet, at the source and behind it."""
    in_journal: int
    """Those of them that were received already."""


def simulate(
    estimator: RateEstimator, scenario: Scenario, engine: Engine = "journal"
) -> list[SimulatedBatch]:
    """Run a scenario from its beginning to its end; return the batches that ended, in order."""
    return _Simulation(estimator, scenario, engine).run()


class _Running(NamedTuple):
    due_ms: int
    start_ms: int
    end_ms: int
    records: int


class _Simulation:
    """Time goes from event to event: ticks, and ends of batches. One batch runs at a time."""

    def __init__(self, estimator: RateEstimator, scenario: Scenario, engine: Engine) -> None:
        self._scenario = scenario
        self._engine = engine
        self._controller = RateController(
            "simulated",
            estimator,
            initial_rate=scenario.initial_rate,
            min_rate=scenario.min_rate,
            max_rate=scenario.max_rate,
        )
        self._random = random.Random(scenario.seed)
        self._now_ms = 0
        self._at_source = float(scenario.backlog)
        self._received = 0.0
        self._left = 0  # by the batch that was planned last
        self._queue: deque[tuple[int, int]] = deque()  # due_ms, count
        self._due_ms: int | None = None
        self._carry = Carry()
        self._running: _Running | None = None
        self._done: list[SimulatedBatch] = []

    def run(self) -> list[SimulatedBatch]:
        interval_ms = self._scenario.batch_interval_ms
        for tick_ms in range(interval_ms, self._scenario.duration_ms + 1, interval_ms):
            while self._running is not None and self._running.end_ms <= tick_ms:
                self._receive_until(self._running.end_ms)
                self._end(self._running)
                self._start_next()
            self._receive_until(tick_ms)
            self._tick()
            self._start_next()
        return self._done

    def _receive_until(self, time_ms: int) -> None:
        """Let records come, and the receiver take of them what the limit allows."""
        span_s = (time_ms - self._now_ms) / 1000
        self._at_source += self._scenario.arrivals(self._now_ms) * span_s
        rate = self._controller.latest_rate
        if self._engine == "journal":
            rate = receive_rate(rate, self._left, self._scenario.batch_interval_ms)
            rate = min(rate, self._scenario.max_rate or math.inf)
        taken = min(self._at_source, min(rate, self._scenario.source_rate) * span_s)
        self._at_source -= taken
        self._received += taken
        self._now_ms = time_ms

    def _tick(self) -> None:
        if self._engine == "queue":
            self._queue.append((self._now_ms, int(self._received)))
            self._received -= int(self._received)
        elif self._due_ms is None:
            self._due_ms = self._now_ms

    def _start_next(self) -> None:
        if self._running is not None:
            return
        if self._queue:
            self._start(*self._queue.popleft())
        elif self._due_ms is not None:
            due_ms, self._due_ms = self._due_ms, None
            self._start(due_ms, self._plan())

    def _plan(self) -> int:
        """Return how many of the received records a batch may take."""
        limit = self._controller.latest_rate * self._scenario.batch_interval_ms / 1000
        there = {"records": int(self._received)}
        cut = cut_range({}, there, RangeLimits(limit), self._carry)
        self._carry = cut.carry
        self._received -= cut.count
        self._left = int(self._received)
        return cut.count

    def _start(self, due_ms: int, count: int) -> None:
        scenario = self._scenario
        fixed_ms, per_record_ms = scenario.cost(self._now_ms)
        factor = math.exp(self._random.gauss(-(scenario.noise**2) / 2, scenario.noise))
        if self._random.random() < scenario.outliers:
            factor *= scenario.outlier_factor
        delay_ms = max(1, round((fixed_ms + per_record_ms * count) * factor))
        self._running = _Running(due_ms, self._now_ms, self._now_ms + delay_ms, count)

    def _end(self, batch: _Running) -> None:
        self._running = None
        decision = self._controller.on_batch_completed(
            batch.end_ms,
            batch.records,
            batch.end_ms - batch.start_ms,
            batch.start_ms - batch.due_ms,
        )
        queued = sum(count for _, count in self._queue)
        received = int(self._received) + queued
        waiting = received + int(self._at_source)
        self._done.append(SimulatedBatch(batch.due_ms, decision, waiting, received))
