"""What a batch costs: a fixed part and a part for each record, learned batch by batch. Pure.

    processing delay = fixed_ms + per_record_ms * records

A Kalman filter over the two costs: they walk at random (drift), observations are noisy in
proportion to their size. Beside the costs it knows how sure it is of them, and of which of the two:
many equal batches tell their sum but not their parts, small ones tell the fixed part alone. That is
what keeps quiet periods from saying anything about a rate that they never tried.

Costs are never negative: an update that would make one so is moved along the line of what the
observation allows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

__all__ = ["CostModel"]

_DRIFT = 0.03
"""How far the cost per record walks in a batch, relative to itself, one standard deviation."""
_FIXED_DRIFT = 0.005
"""The same for the fixed cost, relative to the batch interval."""
_MAX_FIXED_SD = 0.25
"""Drift makes the fixed cost no less certain than this share of the batch interval."""
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
        """Return what one batch tells: all of its time may be the records', or much of it fixed.

        Without a second batch the costs are taken to be the records': the estimate that lets the
        least through above this size.
        """
        sd = delay_ms  # of the split; the sum is only uncertain by the noise
        per_record_sd = sd / num_elements
        sum_sd = math.hypot(noise * delay_ms, _RESOLUTION_MS) / num_elements
        return CostModel(
            0.0, delay_ms / num_elements, sd**2, -sd * per_record_sd, per_record_sd**2 + sum_sd**2
        )

    def predict_ms(self, num_elements: float) -> float:
        """Return the expected processing delay of a batch of that size."""
        return self.fixed_ms + self.per_record_ms * num_elements

    def sd_ms(self, num_elements: float) -> float:
        """Return the standard deviation of that expectation; noise of the batch comes on top."""
        return math.sqrt(max(self._variance(num_elements), 0.0))

    def noise_ms(self, num_elements: float, noise: float) -> float:
        """Return the standard deviation of a batch about its expectation."""
        return math.hypot(noise * self.predict_ms(num_elements), _RESOLUTION_MS)

    def surprise(self, num_elements: int, delay_ms: float, noise: float) -> float:
        """Return by how many standard deviations a delay differs from the expectation."""
        spread = math.hypot(self.sd_ms(num_elements), self.noise_ms(num_elements, noise))
        return (delay_ms - self.predict_ms(num_elements)) / spread

    def aged(self, batch_interval_ms: float) -> CostModel:
        """Return the model one batch later: drift made it less certain, up to a bound."""
        fixed_sd, record_sd = _MAX_FIXED_SD * batch_interval_ms, _MAX_RECORD_SD * self.per_record_ms
        return replace(
            self,
            var_fixed=_grown(self.var_fixed, _FIXED_DRIFT * batch_interval_ms, fixed_sd),
            var_record=_grown(self.var_record, _DRIFT * self.per_record_ms, record_sd),
        )

    def doubted(self, batch_interval_ms: float) -> CostModel:
        """Return a model that takes these costs for a hint only: something has changed."""
        return replace(
            self,
            var_fixed=self.var_fixed + (0.5 * self.fixed_ms) ** 2 + (0.02 * batch_interval_ms) ** 2,
            var_record=self.var_record + self.per_record_ms**2,
        )

    def updated(self, num_elements: int, delay_ms: float, noise: float) -> CostModel:
        """Return the model that has learned of one more batch."""
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
        """Move both costs to the most likely pair that is allowed."""
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
    """Return a variance one step of drift later; drift takes it no further than ``most_sd``."""
    return max(variance, min(variance + drift**2, most_sd**2))
