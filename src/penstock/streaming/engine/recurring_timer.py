"""Calls back once each period, whatever happens to the wall clock.

Invariants:

1. Times of calls only grow, by a period or a multiple of it. They lie on the wall clock's multiples
   of the period after an origin, while that clock does.
2. A call comes when the wall clock reaches its time, but no later than a period after the one
   before, by the monotonic clock. So a clock that was set back, or that stands far behind the first
   time, holds nothing up: times of calls are ahead of it from then on.
3. A call that is late does not shift the ones after it: every period that passed gets its call. A
   clock that was set forward passes no periods: the latest time that it jumps over gets a call.

Source: ``org.apache.spark.streaming.util.RecurringTimer``, which waits for the wall clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock, iso_time

__all__ = ["RecurringTimer"]

_log = logging.getLogger(__name__)
_LONGEST_WAIT_MS = 1000
"""After that long at most the timer notices that the wall clock was set."""


class RecurringTimer:
    """A thread that calls ``callback`` with the time of each call."""

    def __init__(
        self, clock: Clock, period_ms: int, callback: Callable[[int], None], name: str
    ) -> None:
        self._clock = clock
        self._period_ms = period_ms
        self._callback = callback
        self._stopped = threading.Event()
        self._next_ms = 0
        self._no_later_ms = 0  # monotonic: the next call comes by then
        self._ahead_ms = 0  # of the monotonic clock
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def first_tick_after(self, time_ms: int, origin_ms: int = 0) -> int:
        """Return the first multiple of the period after the origin that is later than that time."""
        return time_ms + self._period_ms - (time_ms - origin_ms) % self._period_ms

    def start(self, first_ms: int) -> None:
        """Begin; the first call is for ``first_ms``."""
        self._next_ms = first_ms
        self._no_later_ms = self._clock.monotonic_ms() + self._period_ms
        self._ahead_ms = self._wall_ahead_ms()
        self._thread.start()

    def stop(self) -> int:
        """Call back no more; return the time that the next call would have been for."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        return self._next_ms

    def _run(self) -> None:
        while self._wait():
            self._callback(self._next_ms)
            self._next_ms += self._period_ms
            passed_ms = min(self._clock.monotonic_ms(), self._no_later_ms)
            self._no_later_ms = passed_ms + self._period_ms

    def _wait(self) -> bool:
        """Wait for the next call; return False when there is none."""
        while not self._stopped.is_set():
            self._follow_jumps()
            now_ms = self._clock.monotonic_ms()
            left_ms = min(self._next_ms - self._clock.time_ms(), self._no_later_ms - now_ms)
            if left_ms <= 0:
                return True
            self._clock.wait_until(now_ms + min(left_ms, _LONGEST_WAIT_MS), self._stopped)
        return False

    def _follow_jumps(self) -> None:
        ahead_ms = self._wall_ahead_ms()
        jump_ms, self._ahead_ms = ahead_ms - self._ahead_ms, ahead_ms
        if jump_ms <= -self._period_ms:
            _log.warning(
                "The clock of this machine was set back by %.1f s. Batches go on, one each %g s, "
                "with times ahead of the clock; windows and timeouts of state go by them",
                -jump_ms / 1000,
                self._period_ms / 1000,
            )
        elif jump_ms >= self._period_ms:
            now_ms = self._clock.time_ms()
            latest_ms = now_ms - (now_ms - self._next_ms) % self._period_ms
            self._next_ms = max(self._next_ms, latest_ms)
            _log.warning(
                "The clock of this machine went forward by %.1f s at once. The next batch is of "
                "%s; of the times before it those have batches at which windows end that hold "
                "records",
                jump_ms / 1000,
                iso_time(self._next_ms),
            )

    def _wall_ahead_ms(self) -> int:
        return self._clock.time_ms() - self._clock.monotonic_ms()
