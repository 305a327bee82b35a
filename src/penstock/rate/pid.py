"""Spark's PID estimator, bit for bit.

The error is the difference between the requested rate and the measured one. Its integral is derived
from the scheduling delay: a delay of s seconds stands for s x rate records that earlier batches
could not process.

    new = max(latest - proportional * error - integral * historical - derivative * dError, min rate)

The order of the operations is deliberately that of the JVM: a test compares all bits with Spark's
class.

Source: ``org.apache.spark.streaming.scheduler.rate.PIDRateEstimator``.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from penstock.logs import TRACE
from penstock.rate.estimator import RateEstimator, non_negative, positive

_log = logging.getLogger(__name__)


class _Terms(NamedTuple):
    """The terms of one batch's estimate, in the words of Spark's trace."""

    latest_rate: float
    error: float
    latest_error: float
    historical_error: float
    delay_since_update_s: float
    d_error: float
    processing_rate: float

    def __str__(self) -> str:
        return (
            f"latestRate = {self.latest_rate}, error = {self.error}, "
            f"latestError = {self.latest_error}, historicalError = {self.historical_error}, "
            f"delaySinceUpdate = {self.delay_since_update_s}, dError = {self.d_error}, "
            f"processingRate = {self.processing_rate}"
        )


class PIDRateEstimator(RateEstimator):
    """Follows the processing rate of the last batch.

    Logs under ``penstock.rate.pid``: at DEBUG each estimate with every term of it, at TRACE also
    the inputs, and estimates that were skipped.

    Args:
        batch_interval_ms: length of a batch.
        proportional: weight of the error; at 1 the new rate is the last batch's processing rate.
        integral: weight of the accumulated error.
        derivative: weight of the error's change.
        min_rate: lowest rate, records per second.

    Raises:
        ConfigError: an argument is out of range, infinite or NaN.
    """

    def __init__(
        self,
        batch_interval_ms: int,
        proportional: float = 1.0,
        integral: float = 0.2,
        derivative: float = 0.0,
        min_rate: float = 100.0,
    ) -> None:
        self._batch_interval_ms = float(positive("batch_interval_ms", batch_interval_ms))
        self._proportional = float(non_negative("proportional", proportional))
        self._integral = float(non_negative("integral", integral))
        self._derivative = float(non_negative("derivative", derivative))
        self._min_rate = float(positive("min_rate", min_rate))
        self._first_run = True
        self._latest_time_ms = -1
        self._latest_rate = -1.0
        self._latest_error = -1.0
        self._why = "no batch yet"

    def compute(
        self,
        time_ms: int,
        num_elements: int,
        processing_delay_ms: int,
        scheduling_delay_ms: int,
    ) -> float | None:
        """See RateEstimator.compute; the first batch with records yields None, as in Spark."""
        _log.log(
            TRACE,
            "time = %d, # records = %d, processing time = %d, scheduling delay = %d",
            *(time_ms, num_elements, processing_delay_ms, scheduling_delay_ms),
        )
        if time_ms <= self._latest_time_ms or num_elements <= 0 or processing_delay_ms <= 0:
            self._skip("a batch without records, delay or progress of time")
            return None
        terms = self._terms(time_ms, num_elements, processing_delay_ms, scheduling_delay_ms)
        self._latest_time_ms = time_ms
        if self._first_run:
            self._first_run = False
            self._latest_rate, self._latest_error = terms.processing_rate, 0.0
            self._skip("the first batch gives the rate to compare with")
            return None
        self._latest_rate, self._latest_error = self._new_rate(terms), terms.error
        self._why = f"{self._word(terms)}: {terms}"
        _log.debug("New rate = %r, %s", self._latest_rate, terms)
        return self._latest_rate

    def explain(self) -> str:
        """Return the terms of the last estimate after a word for it, or why there was none."""
        return self._why

    def _word(self, terms: _Terms) -> str:
        if self._latest_rate <= self._min_rate:
            return "minimum rate"
        return "late" if self._integral * terms.historical_error > 0 else "target"

    def _terms(
        self, time_ms: int, num_elements: int, processing_delay_ms: int, scheduling_delay_ms: int
    ) -> _Terms:
        delay_since_update_s = float(time_ms - self._latest_time_ms) / 1000.0
        processing_rate = float(num_elements) / float(processing_delay_ms) * 1000.0
        error = self._latest_rate - processing_rate
        return _Terms(
            latest_rate=self._latest_rate,
            error=error,
            latest_error=self._latest_error,
            historical_error=float(scheduling_delay_ms) * processing_rate / self._batch_interval_ms,
            delay_since_update_s=delay_since_update_s,
            d_error=(error - self._latest_error) / delay_since_update_s,
            processing_rate=processing_rate,
        )

    def _new_rate(self, terms: _Terms) -> float:
        rate = (
            terms.latest_rate
            - self._proportional * terms.error
            - self._integral * terms.historical_error
            - self._derivative * terms.d_error
        )
        return max(rate, self._min_rate)

    def _skip(self, why: str) -> None:
        self._why = f"no estimate: {why}"
        _log.log(TRACE, "Rate estimation skipped: %s", why)
