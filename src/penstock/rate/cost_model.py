"""The cost of a batch: a fixed part and a part for each record, learned batch by batch. Pure.

    processing delay = fixed_ms + per_record_ms * records

A Kalman filter over the two costs: the costs follow a random walk (drift), and the noise of
observations is proportional to their size. The filter also tracks the uncertainty of each cost:
many equal batches determine the sum of the costs but not the parts, and small batches determine the
fixed part only. So quiet periods do not affect the estimate for a rate that they never reached.

Costs are never negative: an update that would make one negative is moved along the line of costs
that match the observation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

_DRIFT = 0.03
"""Drift of the cost per record in a batch, relative to itself, one standard deviation."""
_FIXED_DRIFT = 0.005
"""The same for the fixed cost, relative to the batch interval."""
_MAX_FIXED_SD = 0.25
"""Limit of the uncertainty of the fixed cost through drift, as a share of the batch interval."""
_MAX_RECORD_SD = 0.5
"""The same for the cost per record, relative to itself."""
_RESOLUTION_MS = 1.0
"""Delays are whole milliseconds."""
_LEAST_RECORD_SHARE = 1e-3
"""The records of a batch cost at least this share of its time: the cost per record is above 0."""


@dataclass(frozen=True, slots=True)
class CostModel:
    """The two costs, and the covariance of their error (ms², ms² per record, per record²)."""

    fixed_ms: float
    per_record_ms: float
    var_fixed: float
    covariance: float
    var_record: float

    @staticmethod
    def first(num_elements: int, delay_ms: float, noise: float) -> CostModel:
        """Return the model after one batch: its time may be due to the records, or mostly fixed.

        Without a second batch all cost is attributed to the records: the most conservative estimate
        above this size.
        """
        sd = delay_ms  # of the split; the sum has only the uncertainty of the noise
        per_record_sd = sd / num_elements
        sum_sd = math.hypot(noise * delay_ms, _RESOLUTION_MS) / num_elements
        return CostModel(
            0.0, delay_ms / num_elements, sd**2, -sd * per_record_sd, per_record_sd**2 + sum_sd**2
        )

    def predict_ms(self, num_elements: float) -> float:
        """Return the expected processing delay of a batch of that size."""
        return self.fixed_ms + self.per_record_ms * num_elements

    def sd_ms(self, num_elements: float) -> float:
        """Return the standard deviation of that expectation, without the noise of the batch."""
        return math.sqrt(max(self._variance(num_elements), 0.0))

    def noise_ms(self, num_elements: float, noise: float) -> float:
        """Return the standard deviation of a batch about its expectation."""
        return math.hypot(noise * self.predict_ms(num_elements), _RESOLUTION_MS)

    def surprise(self, num_elements: int, delay_ms: float, noise: float) -> float:
        """Return the difference of a delay from the expectation, in standard deviations."""
        spread = math.hypot(self.sd_ms(num_elements), self.noise_ms(num_elements, noise))
        return (delay_ms - self.predict_ms(num_elements)) / spread

    def aged(self, batch_interval_ms: float) -> CostModel:
        """Return the model one batch later: drift increases its uncertainty, up to a bound."""
        fixed_sd, record_sd = _MAX_FIXED_SD * batch_interval_ms, _MAX_RECORD_SD * self.per_record_ms
        return replace(
            self,
            var_fixed=_grown(self.var_fixed, _FIXED_DRIFT * batch_interval_ms, fixed_sd),
            var_record=_grown(self.var_record, _DRIFT * self.per_record_ms, record_sd),
        )

    def doubted(self, batch_interval_ms: float) -> CostModel:
        """Return a model with high uncertainty about these costs: something has changed."""
        return replace(
            self,
            var_fixed=self.var_fixed + (0.5 * self.fixed_ms) ** 2 + (0.02 * batch_interval_ms) ** 2,
            var_record=self.var_record + self.per_record_ms**2,
        )

    def updated(self, num_elements: int, delay_ms: float, noise: float) -> CostModel:
        """Return the model after it learned from one more batch."""
        n = float(num_elements)
        innovation = delay_ms - self.predict_ms(n)
        with_fixed = self.var_fixed + n * self.covariance
        with_record = self.covariance + n * self.var_record
        spread = self._variance(n) + self.noise_ms(n, noise) ** 2
        gain_fixed, gain_record = with_fixed / spread, with_record / spread
        learned = CostModel(
            self.fixed_ms + gain_fixed * innovation,
            self.per_record_ms + gain_record * innovation,
            max(self.var_fixed - gain_fixed * with_fixed, 0.0),
            self.covariance - gain_fixed * with_record,
            max(self.var_record - gain_record * with_record, 0.0),
        )
        return learned._not_negative(_LEAST_RECORD_SHARE * delay_ms / n)

    def _variance(self, n: float) -> float:
        return self.var_fixed + 2 * n * self.covariance + n * n * self.var_record

    def _not_negative(self, least_record_ms: float) -> CostModel:
        """Move both costs to the most likely valid pair."""
        fixed, record = self.fixed_ms, self.per_record_ms
        if fixed < 0:
            record += self.covariance / self.var_fixed * -fixed if self.var_fixed else 0.0
            fixed = 0.0
        if record < least_record_ms:
            if self.var_record:
                fixed += self.covariance / self.var_record * (least_record_ms - record)
            fixed, record = max(fixed, 0.0), least_record_ms
        return replace(self, fixed_ms=fixed, per_record_ms=record)


def _grown(variance: float, drift: float, most_sd: float) -> float:
    """Return a variance one step of drift later; drift raises it to ``most_sd`` at most."""
    return max(variance, min(variance + drift**2, most_sd**2))
