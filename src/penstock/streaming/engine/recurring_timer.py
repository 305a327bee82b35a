"""Calls back once in each period, regardless of changes to the wall clock.

Invariants:

1. Times of calls only grow, by a period or a multiple of it. They are multiples of the period after
   an origin on the wall clock, as long as that clock is not changed.
2. A call comes when the wall clock reaches its time, but no later than a period after the previous
   call, by the monotonic clock. So a clock that was set back, or that is far behind the first time,
   causes no delay: the times of calls are ahead of it from then on.
3. A late call does not shift later ones: every elapsed period gets its call. If the clock was set
   forward, only the latest time that it jumped over gets a call.

Source: ``org.apache.spark.streaming.util.RecurringTimer``, which waits for the wall clock.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from penstock.clock import Clock, iso_time

_log = logging.getLogger(__name__)
_LONGEST_WAIT_MS = 1000
"""The longest time until the timer detects a change of the wall clock."""


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
        self._no_later_ms = 0  # monotonic: the next call is due by then
        self._ahead_ms = 0  # of the monotonic clock
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def first_tick_after(self, time_ms: int, origin_ms: int = 0) -> int:
        """Return the first multiple of the period after the origin that is later than that time."""
        return time_ms + self._period_ms - (time_ms - origin_ms) % self._period_ms

    def start(self, first_ms: int) -> None:
        """Start; the first call is for ``first_ms``."""
        self._next_ms = first_ms
        self._no_later_ms = self._clock.monotonic_ms() + self._period_ms
        self._ahead_ms = self._wall_ahead_ms()
        self._thread.start()

    def stop(self) -> int:
        """Stop calling back; return the time of the next call that would have been due."""
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
        """Wait for the next call; return False if there is none."""
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
                "The clock of this machine was set back by %.1f s. Batches continue, one every %g "
                "s, with times ahead of the clock; windows use these times",
                -jump_ms / 1000,
                self._period_ms / 1000,
            )
        elif jump_ms >= self._period_ms:
            now_ms = self._clock.time_ms()
            latest_ms = now_ms - (now_ms - self._next_ms) % self._period_ms
            self._next_ms = max(self._next_ms, latest_ms)
            _log.warning(
                "The clock of this machine was set forward by %.1f s. The next batch is of "
                "%s; times before it have batches only where windows end that hold "
                "records",
                jump_ms / 1000,
                iso_time(self._next_ms),
            )

    def _wall_ahead_ms(self) -> int:
        return self._clock.time_ms() - self._clock.monotonic_ms()
