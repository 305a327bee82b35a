"""Ticks of the batch interval: the timer that makes them, and those that no batch has yet.

Invariants of the timer, which calls back once in each period, regardless of changes to the wall
clock:

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
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.clock import Clock, iso_time

_log = logging.getLogger(__name__)
_LONGEST_WAIT_MS = 1000
"""The longest time until the timer detects a change of the wall clock."""


def tick_after(time_ms: int, period_ms: int, origin_ms: int) -> int:
    """Return the first multiple of the period after the origin that is later than that time."""
    return time_ms + period_ms - (time_ms - origin_ms) % period_ms


def first_tick(now_ms: int, newest_ms: int, interval_ms: int, origin_ms: int) -> int:
    """Return the time of the first batch: after the previous run's newest batch."""
    first_ms = tick_after(max(now_ms, newest_ms), interval_ms, origin_ms)
    if first_ms - now_ms > interval_ms:
        _log.warning(
            "The newest batch time is %s, %.0f s ahead of the clock of this machine, which "
            "was ahead once, or is behind now. Batches continue after it, one every %g s, "
            "with times ahead of the clock; windows use these times",
            iso_time(newest_ms),
            (newest_ms - now_ms) / 1000,
            interval_ms / 1000,
        )
    return first_ms


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


_SAY_LATE_EVERY_MS = 60_000
_WARM_UP_MS = 30_000
"""The first batches of a run are late on any machine, while Spark starts its workers."""


class DueTick(NamedTuple):
    """A tick that a batch is due for."""

    time_ms: int
    """The batch's time: that of the last tick that was merged into it."""
    since_ms: int
    """The time of the first merged tick: from then on the batch is late."""
    is_missed: bool = False
    """Whether it passed without a batch; see penstock.streaming.core.missed_ticks."""


class DueTicks:
    """Late ticks, oldest first; those that were missed come before the tick that follows them.

    Args:
        merge: whether a tick replaces one that still waits, or each waits for its own batch.
    """

    def __init__(self, merge: bool) -> None:
        self._merge = merge
        self._missed: deque[DueTick] = deque()
        self._due: deque[DueTick] = deque()
        self._missed_are_known = False  # before the first one of _due

    @property
    def late_since_ms(self) -> int | None:
        """The first tick that waits for earlier batches to end, None without one."""
        return self._due[0].since_ms if self._due else None

    def add(self, time_ms: int, since_ms: int) -> None:
        """Add a tick that is later than all earlier ones."""
        if self._due and self._merge:
            since_ms = self._due.pop().since_ms
        self._due.append(DueTick(time_ms, since_ms))
        self._missed_are_known = False

    def add_missed(self, ticks: Sequence[DueTick]) -> None:
        """Add ticks that were missed before the next one, and after all other missed ones."""
        self._missed.extend(ticks)
        self._missed_are_known = True

    @property
    def unknown_before_ms(self) -> int | None:
        """The next tick, before which ticks may have been missed, None without one."""
        if self._missed or not self._due or self._missed_are_known:
            return None
        return self._due[0].time_ms

    def take(self) -> DueTick | None:
        """Return the tick to plan a batch for next, None without one."""
        if self._missed:
            return self._missed.popleft()
        self._missed_are_known = False
        return self._due.popleft() if self._due else None


class LateWarning:
    """Warns of late batches, after the warm-up, and once a minute at most."""

    def __init__(self, batch_interval_ms: int, now_ms: int) -> None:
        self._interval_ms = batch_interval_ms
        self._next_ms = now_ms + _WARM_UP_MS

    def check(self, late_since_ms: int | None, now_ms: int) -> None:
        """Warn if a batch has been late since then."""
        if late_since_ms is None or now_ms < self._next_ms:
            return
        self._next_ms = now_ms + _SAY_LATE_EVERY_MS
        _log.warning(
            "The next batch has waited for %.1f s, since %s: the batches before it take longer "
            "than the batch interval of %g s. Records received meanwhile are kept for the next "
            "batches. If this continues, give the program more cores or a longer batch interval, "
            "or limit its rate (spark.streaming.backpressure.enabled)",
            (now_ms - late_since_ms) / 1000,
            iso_time(late_since_ms),
            self._interval_ms / 1000,
        )
