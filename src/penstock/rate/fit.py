"""The overhead-aware estimator: fits the cost of a batch, and fills the interval to a target.

PID takes records / delay as the capacity of the job. A batch also has a fixed cost (planning,
tasks, commits), so a small batch appears slow, and quiet periods lower PID's rate. This estimator
separates the two costs (penstock.rate.cost_learner). The limit is the number of records that takes
the target share of the interval:

- less the time that batches are late (**draining**);
- never more than ten times the largest batch so far, nor more than twice this batch if, for all the
  model knows, that could take three intervals (**growing**): where most of a batch is fixed cost,
  noise hides what a record costs;
- the lower of two limits while it is undecided whether a surprise was an outlier or a change
  (**surprise**): an outlier costs one small batch, and a slowdown takes effect at once;
- never less than before after the **first batch**: a cold JVM takes seconds for it, regardless of
  its size, and the second batch shows whether that was the only reason;
- where the limit is at its lowest (**fixed cost fills the interval**, **minimum rate**), two sizes
  take turns: batches of one size do not show what a record costs;
- never less than what comes at the minimum rate while a batch runs;
- a batch that did not use its limit says little about it: the limit stays, unless the model is
  certain that it is too high (**source-limited**; congestion windows are validated in the same way,
  RFC 7661).

Prior art: Das et al., "Adaptive Stream Processing using Dynamic Batch Sizing" (2014), for the
linear model of batch times.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.rate.cost_learner import CostLearner
from penstock.rate.cost_model import CostModel
from penstock.rate.estimator import RateEstimator, positive

_log = logging.getLogger(__name__)

_TARGET_UTILISATION = 0.9
"""Target share of the interval for a batch: with 10% noise it stays within the interval."""
_LEAST_UTILISATION = 0.45
"""The least share while draining, so that late batches do not starve the program."""
_LEAST_ROOM = 0.1
"""Share of the interval for records if the fixed cost leaves none, to avoid a stall."""
_CONFIDENCE_SD = 2.0
"""Distance of a model's optimistic and pessimistic bounds from its expectation."""
_MAX_GROWTH = 10.0
"""Costs may not be linear for sizes that never ran."""
_SAFE_GROWTH = 2.0
_MAX_INTERVALS = 3.0
"""A batch that grows more than ``_SAFE_GROWTH`` does not take longer, by the pessimistic bound."""
_TURN = 4.0
"""The larger of two sizes that take turns at the minimum rate: noise of 30% does not hide it."""
_USES_LIMIT = 0.5
"""A batch with at least this share of its limit is informative about the limit."""

Why = Literal[
    "no estimate",
    "first batch",
    "target",
    "draining",
    "growing",
    "surprise",
    "source-limited",
    "fixed cost fills the interval",
    "minimum rate",
]


_LOWEST: tuple[Why, ...] = ("minimum rate", "fixed cost fills the interval")
"""Where batches are late with any limit."""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reason for a limit, for one batch. Plain values, for logs and for the rate's history."""

    why: Why
    limit_records_per_s: float | None
    """None if the batch yields no estimate."""
    target_utilisation: float
    fixed_ms: float | None = None
    per_record_ms: float | None = None
    noise: float | None = None
    """Standard deviation of batch times, relative to them."""

    def __str__(self) -> str:
        if self.fixed_ms is None or self.per_record_ms is None or self.noise is None:
            return self.why
        return (
            f"{self.why}: {self.fixed_ms:.1f} ms + {self.per_record_ms * 1000:.3f} us a record, "
            f"noise {self.noise:.0%}, target {self.target_utilisation:.0%} of the interval"
        )


class FitRateEstimator(RateEstimator):
    """Models batch time as fixed cost + cost per record; see the module's docstring.

    Logs each reasoning at DEBUG under ``penstock.rate.fit``.

    Args:
        batch_interval_ms: length of a batch.
        min_rate: lowest rate, records per second.

    Raises:
        ConfigError: an argument is out of range, infinite or NaN.
    """

    def __init__(self, batch_interval_ms: int, min_rate: float = 100.0) -> None:
        self._interval_ms = float(positive("batch_interval_ms", batch_interval_ms))
        self._least = self._per_batch(positive("min_rate", min_rate))
        self._costs = CostLearner(self._interval_ms)
        self._limit: float | None = None  # records per batch
        self._largest = 0  # the largest batch so far
        self._latest_time_ms = -1
        self._smaller = False  # the last of the lowest limits
        self.reasoning = Reasoning("no estimate", None, _TARGET_UTILISATION)
        """The reason for the last result of ``compute``."""

    def limited_to(self, rate_records_per_s: float) -> None:
        """See RateEstimator.limited_to."""
        self._limit = self._per_batch(positive("rate_records_per_s", rate_records_per_s))

    def explain(self) -> str:
        """Return the reasoning as text."""
        return str(self.reasoning)

    def compute(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> float | None:
        """See RateEstimator.compute; returns a rate from the first batch on."""
        comes_later = time_ms > self._latest_time_ms
        self._latest_time_ms = (
            time_ms  # also after the clock was set back: the next batch counts again
        )
        if not comes_later or num_elements <= 0 or processing_delay_ms <= 0:
            self.reasoning = self._reason("no estimate", None, _TARGET_UTILISATION)
            return None
        is_first = self._costs.model is None
        used_limit = self._limit is None or num_elements >= _USES_LIMIT * self._limit
        self._largest = max(self._largest, num_elements)
        self._costs.learn(num_elements, processing_delay_ms, used_limit=used_limit)
        late_ms = max(scheduling_delay_ms + processing_delay_ms - self._interval_ms, 0.0)
        target = max(_TARGET_UTILISATION - late_ms / self._interval_ms, _LEAST_UTILISATION)
        if self._limit is not None and not used_limit:
            limit, why = self._hold(self._limit, target)
        else:
            limit, why = self._aim(target, num_elements)
        if is_first and self._limit is not None:
            limit = max(limit, self._limit)
        least = self._least_limit()
        if limit < least:
            limit, why = least, "minimum rate"
        if why in _LOWEST:
            self._smaller = not self._smaller
            limit = max(limit / 2, least) if self._smaller else max(limit, _TURN * least)
        self._limit = limit
        self.reasoning = self._reason(why, limit / self._interval_ms * 1000, target)
        _log.debug("%s", self.reasoning)
        return self.reasoning.limit_records_per_s

    def _hold(self, limit: float, target: float) -> tuple[float, Why]:
        """Return the limit, or less if even a model's optimistic bound is lower."""
        held = min(self._hold_by(model, limit, target) for model in self._models())
        return held, "source-limited" if self._costs.rival is None else "surprise"

    def _hold_by(self, model: CostModel, limit: float, target: float) -> float:
        def too_long(count: float) -> bool:
            likely_ms = model.predict_ms(count) - _CONFIDENCE_SD * model.sd_ms(count)
            return likely_ms > target * self._interval_ms

        return _largest(limit, too_long)

    def _aim(self, target: float, count: int) -> tuple[float, Why]:
        """Return the records that fill the target share, within the allowed growth of a batch."""
        limit, why = min(self._aim_by(model, target, count) for model in self._models())
        if self._costs.rival is not None:
            return limit, "surprise"
        return limit, "first batch" if self._costs.learned == 1 else why

    def _aim_by(self, model: CostModel, target: float, count: int) -> tuple[float, Why]:
        def is_risky(records: float) -> bool:
            worst_ms = model.predict_ms(records) + _CONFIDENCE_SD * model.sd_ms(records)
            return records > _SAFE_GROWTH * count and worst_ms > _MAX_INTERVALS * self._interval_ms

        room_ms = max(target * self._interval_ms - model.fixed_ms, _LEAST_ROOM * self._interval_ms)
        aim = room_ms / model.per_record_ms
        most = _largest(min(aim, _MAX_GROWTH * self._largest), is_risky)
        if most < aim:
            return most, "growing"
        if model.fixed_ms > (_TARGET_UTILISATION - _LEAST_ROOM) * self._interval_ms:
            return aim, "fixed cost fills the interval"
        return aim, "draining" if target < _TARGET_UTILISATION else "target"

    def _models(self) -> list[CostModel]:
        return [m for m in (self._costs.model, self._costs.rival) if m is not None]

    def _least_limit(self) -> float:
        """Return what comes at the minimum rate while a batch runs, which may take longer."""
        fixed_ms = min((model.fixed_ms for model in self._models()), default=0.0)
        return self._least * max(fixed_ms / self._interval_ms, 1.0)

    def _per_batch(self, rate_records_per_s: float) -> float:
        return rate_records_per_s * self._interval_ms / 1000

    def _reason(self, why: Why, limit: float | None, target: float) -> Reasoning:
        model = self._costs.model
        if model is None:
            return Reasoning(why, limit, target)
        costs = (model.fixed_ms, model.per_record_ms, self._costs.noise)
        return Reasoning(why, limit, target, *costs)


def _largest(most: float, too_long: Callable[[float], bool]) -> float:
    """Return the largest count up to ``most`` whose batch is not too long, by bisection."""
    if not too_long(most):
        return most
    low, high = 0.0, most
    while high - low > 1e-3 * high and high > 1.0:
        middle = (low + high) / 2
        low, high = (low, middle) if too_long(middle) else (middle, high)
    return low
