"""The rate limiter of a receiver: a token bucket, represented as a time.

Invariants:

- In any span of time, at most rate x (span + burst) records pass, plus the part of the last store
  that exceeds a burst. A store is never divided, as its records become durable together. When the
  rate changes, records that passed before are charged at the old or the new rate, whichever is
  faster.
- Fractions are carried: 0.3 records/s is one record in 3.3 seconds, and only None means
  "unlimited".
- A waiting thread checks the stop flag and a new rate within a block interval.
- While it is paused no record passes, and no time is saved beyond a burst.

The bucket is one number, the time at which all passed records are paid for (the *theoretical
arrival time* of the generic cell rate algorithm, ITU-T I.371). It is at most a burst in the past:
then the bucket is full. A time in the future is a debt. A burst is the block interval, so the
records of a batch are distributed evenly over its blocks.

Source: ``org.apache.spark.streaming.receiver.RateLimiter``.
"""

from __future__ import annotations

import math
import threading

from penstock.clock import Clock, SystemClock
from penstock.errors import ConfigError
from penstock.rate.estimator import positive


class RateLimiter:
    """Delays the threads that store, so that together they keep to a rate. Thread-safe.

    Args:
        rate_records_per_s: the limit, None for none.
        block_interval_ms: the most time that may be saved, and the longest time between two checks.
        clock: measures elapsed time; a change of the system clock has no effect.

    Raises:
        ConfigError: the rate or the interval is not a finite number above 0.
    """

    def __init__(
        self,
        rate_records_per_s: float | None,
        block_interval_ms: int = 200,
        clock: Clock | None = None,
    ) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._burst_ms = positive("block_interval_ms", block_interval_ms)
        self._rate = _checked(rate_records_per_s)
        # Held by the thread that waits first: stores keep their order.
        self._turn = threading.Lock()
        self._is_awaited = False  # set by the thread that has the turn
        self._lock = threading.Lock()  # guards the fields below
        self._paused = False
        self._paid_ms = float(self._clock.monotonic_ms())

    @property
    def rate(self) -> float | None:
        """The effective limit, records per second, None for no limit."""
        with self._lock:
            return self._rate

    def set_rate(self, rate_records_per_s: float | None) -> None:
        """Change the limit; it takes effect on waiting threads within a block interval.

        Raises:
            ConfigError: the rate is not a finite number above 0.
        """
        rate = _checked(rate_records_per_s)
        with self._lock:
            now_ms = self._clock.monotonic_ms()
            debt_ms = self._paid_ms - now_ms
            if rate is None or self._rate is None:
                self._paid_ms = float(now_ms)
            elif debt_ms > 0:
                self._paid_ms = now_ms + debt_ms * min(self._rate / rate, 1.0)
            self._rate = rate

    def set_paused(self, paused: bool) -> None:
        """Pause or resume; it takes effect on waiting threads within a block interval."""
        with self._lock:
            self._paused = paused

    def burst(self) -> int | None:
        """Return the number of records of a block interval, at least 1; None for no limit.

        A larger store passes as a whole and is charged afterwards, so callers should divide stores
        by this size if they can.
        """
        rate = self.rate
        return None if rate is None else max(1, int(rate * self._burst_ms / 1000))

    def acquire(self, count: int, stopped: threading.Event) -> bool:
        """Wait until ``count`` records may be stored, and charge them.

        Returns:
            False if ``stopped`` was set before: nothing is charged, and nothing may be stored.
        """
        with self._turn:
            try:
                while not stopped.is_set():
                    wait_ms = self._charge(count)
                    if wait_ms == 0:
                        return True
                    self._is_awaited = True
                    poll_ms = math.ceil(min(wait_ms, self._burst_ms))
                    self._clock.wait_until(self._clock.monotonic_ms() + poll_ms, stopped)
            finally:
                self._is_awaited = False
        return False

    def try_acquire(self, count: int) -> int:
        """Charge ``count`` records if they may be stored now.

        Returns:
            0 if they may, otherwise the milliseconds after which to retry (nothing is charged).
        """
        if self._is_awaited:
            return math.ceil(self._burst_ms)  # others are waiting already, and come first
        return self._charge(count)

    def give_back(self, count: int) -> None:
        """Undo the charge of records that were not stored after all."""
        with self._lock:
            if self._rate is not None:
                self._paid_ms -= count / self._rate * 1000

    def _charge(self, count: int) -> int:
        if count < 0:
            raise ConfigError(
                f"a store of {count} records",
                operation="limit rate",
                hint="give the number of records, 0 or more",
            )
        with self._lock:
            if self._paused and count:
                return math.ceil(self._burst_ms)
            if self._rate is None or count == 0:
                return 0
            now_ms = self._clock.monotonic_ms()
            cost_ms = count / self._rate * 1000
            paid_ms = max(self._paid_ms, now_ms - self._burst_ms)
            # A store that costs more than the bucket holds passes when it is full, and leaves a
            # debt.
            wait_ms = paid_ms + min(cost_ms, self._burst_ms) - now_ms
            if wait_ms > 0:
                return math.ceil(wait_ms)
            self._paid_ms = paid_ms + cost_ms
            return 0


def _checked(rate: float | None) -> float | None:
    return None if rate is None else positive("rate_records_per_s", rate)
